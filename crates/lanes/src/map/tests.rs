//! Compares the map with a plain map, also while the map grows. Further tests run the map under
//! loom and shuttle.

#[cfg(not(any(loom, shuttle)))]
mod production {
    use crate::epoch::{advance, pin};
    use crate::map::{Change, Map};
    use crate::sync::Arc;
    use crate::sync::atomic::{AtomicBool, Ordering};
    use crate::sync::unscheduled::atomic::AtomicIsize;
    use std::collections::{BTreeMap, HashMap};
    use std::hash::{Hash, Hasher};

    #[test]
    fn an_entry_is_found_replaced_and_removed() {
        let map = Map::new();
        assert_eq!(map.insert(1, "one"), None);
        assert_eq!(map.insert(1, "uno"), Some("one"));
        assert_eq!(map.get(&1), Some("uno"));
        assert_eq!(map.get(&2), None);
        assert_eq!(map.remove_if(&1, |v| *v == "one"), None);
        assert_eq!(map.remove_if(&1, |v| *v == "uno"), Some("uno"));
        assert!(map.is_empty());
    }

    #[test]
    fn a_value_is_made_only_where_there_is_none() {
        let map = Map::new();
        assert_eq!(map.get_or_insert_with(&1, || 10), 10);
        assert_eq!(map.get_or_insert_with(&1, || unreachable!()), 10);
        assert_eq!(map.update(&1, |now| Change::Put(now.map_or(0, |v| v + 1))), Some(10));
        assert_eq!(map.get(&1), Some(11));
    }

    #[test]
    fn sweeps_one_after_the_other_pass_every_entry() {
        let map = Map::new();
        for key in 0..5000_u64 {
            map.insert(key, key);
        }
        for stretch in [1, 7, 64, 1 << 20] {
            let mut seen = std::collections::BTreeSet::new();
            let (mut at, mut passed) = (12345, 0);
            while passed < 1 << 16 {
                at = map.sweep(at, stretch, |key, _| {
                    seen.insert(*key);
                });
                passed += stretch;
            }
            assert_eq!(seen.len(), 5000, "{stretch}");
        }
    }

    #[test]
    fn a_map_does_what_a_plain_one_does() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (map, mut plain) = (Map::new(), HashMap::new());
        for step in 0..60_000_u64 {
            let key = random.u64(0..6000);
            match random.u32(0..10) {
                0..=5 => assert_eq!(map.insert(key, step), plain.insert(key, step)),
                6..=7 => {
                    let gone = map.remove_if(&key, |v| v % 3 != 0);
                    let expected = plain.get(&key).copied().filter(|v| v % 3 != 0);
                    expected.and_then(|_| plain.remove(&key));
                    assert_eq!(gone, expected);
                }
                8 => assert_eq!(map.get(&key), plain.get(&key).copied()),
                _ if step % 500 == 9 => {
                    map.retain(|k, _| k % 5 != step % 5);
                    plain.retain(|k, _| k % 5 != step % 5);
                }
                _ => assert_eq!(
                    map.get_or_insert_with(&key, || step),
                    *plain.entry(key).or_insert(step)
                ),
            }
        }
        assert_eq!(map.len(), plain.len());
        let mut all = BTreeMap::new();
        map.for_each(|k, v| assert_eq!(all.insert(*k, *v), None));
        assert_eq!(all, plain.into_iter().collect());
    }

    #[test]
    fn a_map_grows_with_its_entries() {
        let map = Map::new();
        let before = map.root(&pin()).len();
        (0..20_000_u64).for_each(|n| assert_eq!(map.insert(n, n), None));
        // The changes below move the buckets that are still in the old table.
        (0..20_000_u64).for_each(|n| assert_eq!(map.insert(n, n), Some(n)));
        let after = map.root(&pin()).len();
        assert!(before == 64 && (4096..65536).contains(&after), "{before} -> {after} buckets");
        (0..20_000_u64).for_each(|n| assert_eq!(map.get(&n), Some(n)));
        assert_eq!(map.len(), 20_000);
    }

    /// Keys with equal hashes.
    #[derive(Clone, PartialEq, Eq)]
    struct Colliding(u64);
    impl Hash for Colliding {
        fn hash<H: Hasher>(&self, state: &mut H) {
            state.write_u64(7);
        }
    }

    #[test]
    fn keys_made_to_collide_do_not_make_the_map_large() {
        let map = Map::new();
        (0..2000).for_each(|n| assert_eq!(map.insert(Colliding(n), n), None));
        assert_eq!(map.root(&pin()).len(), 64);
        assert_eq!(map.get(&Colliding(1999)), Some(1999));
    }

    /// A value that is counted in `living` from its creation until its drop.
    #[derive(Debug)]
    struct Counted(Arc<AtomicIsize>);
    impl Counted {
        fn new(living: &Arc<AtomicIsize>) -> Arc<Counted> {
            living.fetch_add(1, Ordering::Relaxed);
            Arc::new(Counted(living.clone()))
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn every_value_is_freed_once() {
        let living = Arc::new(AtomicIsize::new(0));
        let map = Map::new();
        for n in 0..3000_u64 {
            map.insert(n % 1000, Counted::new(&living));
            map.remove_if(&(n % 70), |_| true);
        }
        drop(map);
        // Other tests sometimes hold pins, so the epoch may not advance at once.
        while living.load(Ordering::Relaxed) > 0 {
            advance();
            std::thread::yield_now();
        }
        assert_eq!(living.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn readers_find_unchanged_entries_while_writers_change_others() {
        let map = Map::new();
        (0..500_u64).for_each(|n| _ = map.insert(n, n));
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        for n in 0..500 {
                            assert_eq!(map.with(&pin(), &n, |v| *v), Some(n));
                        }
                    }
                });
            }
            let writers: Vec<_> = (1..3_u64)
                .map(|me| {
                    let map = &map;
                    s.spawn(move || {
                        for n in 0..30_000 {
                            map.insert(me * 1_000_000 + n, n);
                            map.remove_if(&(me * 1_000_000 + n / 2), |_| n % 3 == 0);
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|w| w.join().expect("no panic"));
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[cfg(loom)]
mod loom_tests {
    use crate::epoch::{advance, pin};
    use crate::map::{Change, Map};
    use crate::sync::{Arc, thread};
    use loom::cell::UnsafeCell;

    /// A number, with a cell that is written when the value is created and when it is dropped, so
    /// that loom finds reads that come too early or too late.
    struct Canary(u64, UnsafeCell<u32>);
    // SAFETY: loom's cell checks every access, in every thread.
    unsafe impl Sync for Canary {}

    impl Canary {
        fn new(value: u64) -> Canary {
            let canary = Canary(value, UnsafeCell::new(0));
            canary.write();
            canary
        }
        fn write(&self) {
            // SAFETY: loom's cell checks that no other thread accesses the cell during this write.
            self.1.with_mut(|cell| unsafe { *cell += 1 });
        }
        fn read(&self) -> u64 {
            self.1.with(|_| self.0)
        }
    }
    impl Clone for Canary {
        fn clone(&self) -> Canary {
            Canary::new(self.read())
        }
    }
    impl Drop for Canary {
        fn drop(&mut self) {
            self.write();
        }
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        crate::schedules::check(3, model);
    }

    fn read(map: &Map<u64, Canary>, key: u64) -> Option<u64> {
        map.with(&pin(), &key, Canary::read)
    }

    // In the tests below, the writer is the model's main thread, which runs first. Loom searches
    // for other schedules only from the last access to a location. If the reader ran first, the
    // last access before the writer's store would be the writer's own load, not the reader's
    // access, so loom would not try the store before the reader's access.

    #[test]
    fn loom_a_reader_finds_an_entry_that_is_replaced() {
        check(|| {
            let map = Arc::new(Map::new());
            map.insert(1, Canary::new(1));
            let reader = {
                let map = map.clone();
                thread::spawn(move || {
                    let seen = read(&map, 1);
                    assert!(matches!(seen, Some(1 | 2)), "{seen:?}");
                })
            };
            map.update(&1, |_| Change::Put(Canary::new(2)));
            advance();
            advance();
            reader.join().expect("no panic");
        });
    }

    #[test]
    fn loom_an_entry_is_found_while_its_bucket_moves() {
        check(|| {
            let map = Arc::new(Map::new());
            (0..2).for_each(|n| _ = map.insert(n, Canary::new(n)));
            let pinned = pin();
            map.root(&pinned).begin_growth();
            drop(pinned);
            let reader = {
                let map = map.clone();
                thread::spawn(move || (0..2).for_each(|n| assert_eq!(read(&map, n), Some(n))))
            };
            (2..4).for_each(|n| _ = map.insert(n, Canary::new(n)));
            reader.join().expect("no panic");
            assert_eq!(map.len(), 4);
        });
    }

    #[test]
    fn loom_one_of_two_makers_makes() {
        check(|| {
            let map = Arc::new(Map::new());
            let other = {
                let map = map.clone();
                thread::spawn(move || map.get_or_insert_with(&1, || 1))
            };
            let mine = map.get_or_insert_with(&1, || 2);
            assert_eq!(other.join().expect("no panic"), mine);
        });
    }
}

#[cfg(shuttle)]
mod shuttle_tests {
    use crate::epoch::{advance, pin};
    use crate::map::Map;
    use crate::sync::{Arc, thread};

    #[test]
    fn shuttle_threads_that_change_different_keys_do_not_disturb_each_other() {
        shuttle::check_random(
            || {
                let map = Arc::new(Map::new());
                map.insert(1000, 1000);
                let threads: Vec<_> = (0..4_u64)
                    .map(|me| {
                        let map = map.clone();
                        thread::spawn(move || {
                            for n in 0..8 {
                                let key = me * 10 + n % 4;
                                let before = map.get(&key);
                                assert_eq!(map.insert(key, n), before);
                                assert_eq!(map.with(&pin(), &key, |v| *v), Some(n));
                                if n % 3 == 0 {
                                    assert_eq!(map.remove_if(&key, |_| true), Some(n));
                                    assert_eq!(map.get(&key), None);
                                    advance();
                                }
                                assert_eq!(map.get(&1000), Some(1000));
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|t| t.join().expect("no panic"));
                let mut seen = 0;
                map.for_each(|_, _| seen += 1);
                assert_eq!((seen, map.len()), (13, 13));
            },
            1000,
        );
    }

    #[test]
    fn shuttle_threads_that_contend_for_keys_lose_no_update() {
        use crate::map::Change;
        shuttle::check_random(
            || {
                let map = Arc::new(Map::new());
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        let map = map.clone();
                        thread::spawn(move || {
                            for key in 0..6_u64 {
                                map.update(&key, |now| Change::Put(now.map_or(1, |v| v + 1)));
                            }
                            map.retain(|key, _| *key < 100);
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|t| t.join().expect("no panic"));
                (0..6).for_each(|key| assert_eq!(map.get(&key), Some(4)));
            },
            1000,
        );
    }
}
