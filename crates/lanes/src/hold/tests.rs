//! Tests of holds: no hold is lost when a count becomes spread or is folded, and each value ends
//! exactly once.

use super::*;
use crate::sync::thread;

struct Thing {
    holds: Holds,
    shares: Arc<Shares<Thing>>,
}

impl Holdable for Thing {
    fn holds(&self) -> &Holds {
        &self.holds
    }
    fn shares(&self) -> Option<&Shares<Thing>> {
        Some(&self.shares)
    }
}

fn thing() -> Arc<Thing> {
    Arc::new(Thing { holds: Holds::new(1), shares: Arc::new(Shares::new()) })
}

#[cfg(not(any(loom, shuttle)))]
mod plain {
    use super::*;
    use crate::sync::unscheduled::atomic::AtomicUsize;

    fn on_another_lane<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        thread::scope(|s| s.spawn(work).join().expect("no panic"))
    }

    fn count(thing: &Arc<Thing>) -> u64 {
        thing.holds.0.load(Ordering::Relaxed) & COUNT
    }

    #[test]
    fn one_lane_counts_in_the_word() {
        let thing = thing();
        let second = Hold::take(&thing).expect("alive");
        assert_eq!(count(&thing), 2);
        assert!(!second.release());
    }

    #[test]
    fn the_only_holder_ends_a_value_at_once() {
        let thing = thing();
        let second = on_another_lane(|| Hold::take(&thing).expect("alive"));
        assert!(!end_as_only_holder(&thing));
        assert!(!second.release());
        assert!(end_as_only_holder(&thing));
        assert!(Hold::take(&thing).is_none());
        assert!(!Hold::adopt(thing).release(), "it was ended already");
    }

    #[test]
    fn the_second_lane_leaves_the_word_alone() {
        let thing = thing();
        let hold = on_another_lane(|| Hold::take(&thing).expect("alive"));
        assert!(thing.holds.is_spread());
        assert_eq!(count(&thing), 1);
        let before = thing.holds.0.load(Ordering::Relaxed);
        on_another_lane(|| assert!(!Hold::take(&thing).expect("alive").release()));
        assert_eq!(thing.holds.0.load(Ordering::Relaxed), before);
        assert!(!hold.release());
    }

    #[test]
    fn an_object_without_holds_moves_to_another_lane_once() {
        let thing = thing();
        assert!(!Hold::adopt(thing.clone()).release());
        on_another_lane(|| {
            let holds = [(); 3].map(|()| Hold::take(&thing).expect("alive"));
            assert_eq!(count(&thing), 3);
            assert!(!holds.iter().any(Hold::release));
        });
        assert!(!thing.holds.is_spread());
        // The value moves to another lane only once. When another lane then takes a hold (here the
        // first lane), the value becomes spread, so that its count does not move back and forth
        // between lanes.
        let hold = Hold::take(&thing).expect("alive");
        assert!(thing.holds.is_spread());
        assert_eq!(count(&thing), 0);
        assert!(!hold.release());
    }

    #[test]
    fn a_value_that_moved_is_ended_and_evicted_as_any_other() {
        for end in [end_as_only_holder, |thing: &Arc<Thing>| {
            assert!(!Hold::adopt(thing.clone()).release());
            evict(thing, 0)
        }] {
            let thing = thing();
            assert!(!Hold::adopt(thing.clone()).release());
            on_another_lane(|| {
                Hold::take(&thing).expect("alive");
                assert!(end(&thing));
            });
            assert!(Hold::take(&thing).is_none());
        }
    }

    #[test]
    fn a_nameless_value_ends_with_its_last_hold_wherever_that_was_taken() {
        let thing = thing();
        let first = Hold::adopt(thing.clone());
        let (second, third) = on_another_lane(|| {
            (Hold::take(&thing).expect("alive"), Hold::take(&thing).expect("alive"))
        });
        set_nameless(&thing, Nameless::Yes);
        assert_eq!(count(&thing), 3);
        assert!(!second.release());
        assert!(!first.release());
        assert!(third.release());
        assert!(Hold::take(&thing).is_none());
    }

    #[test]
    fn a_nameless_value_does_not_spread_again() {
        let thing = thing();
        set_nameless(&thing, Nameless::Yes);
        let hold = on_another_lane(|| Hold::take(&thing).expect("alive"));
        assert!(!thing.holds.is_spread());
        assert!(!hold.release());
        assert!(Hold::adopt(thing).release());
    }

    #[test]
    fn a_value_is_evicted_if_only_the_holds_that_outlive_it_are_left() {
        let thing = thing();
        assert!(thing.holds.add(2));
        assert!(!evict(&thing, 2) && !evict(&thing, 1) && !thing.holds.is_dead());
        assert!(!Hold::adopt(thing.clone()).release());
        assert!(evict(&thing, 2) && thing.holds.is_dead());
        assert!(!thing.holds.add(1), "it is dead");
    }

    #[test]
    fn values_held_by_a_lane_are_not_evicted() {
        let thing = thing();
        let hold = on_another_lane(|| Hold::take(&thing).expect("alive"));
        assert!(!Hold::adopt(thing.clone()).release());
        assert!(!evict(&thing, 0));
        assert!(!hold.release());
        assert!(evict(&thing, 0));
        assert!(Hold::take(&thing).is_none());
    }

    #[test]
    fn unused_shares_make_room() {
        let shares = Arc::new(Shares::new());
        let things: Vec<_> = (0..TABLE + 5)
            .map(|_| Arc::new(Thing { holds: Holds::new(1), shares: shares.clone() }))
            .collect();
        on_another_lane(|| {
            for thing in &things {
                assert!(!Hold::take(thing).expect("alive").release());
            }
            assert!(shares.lanes.mine().lock().len() <= TABLE);
        });
        shares.clear();
        assert!(things.iter().all(|thing| Arc::strong_count(thing) == 1));
    }

    #[test]
    fn many_threads_end_a_value_once() {
        for _ in 0..200 {
            let (thing, ends) = (thing(), AtomicUsize::new(0));
            thread::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| {
                        for _ in 0..20 {
                            let Some(hold) = Hold::take(&thing) else { return };
                            let other = Hold::take(&thing);
                            for hold in [Some(hold), other].into_iter().flatten() {
                                ends.fetch_add(hold.release().into(), Ordering::Relaxed);
                            }
                        }
                    });
                }
                let mine = Hold::adopt(thing.clone());
                thread::yield_now();
                set_nameless(&thing, Nameless::Yes);
                ends.fetch_add(mine.release().into(), Ordering::Relaxed);
            });
            assert_eq!(ends.load(Ordering::Relaxed), 1);
            assert!(Hold::take(&thing).is_none());
        }
    }
}

/// Two lanes hold and release a value while its name is removed. The value ends exactly once.
#[cfg(any(loom, shuttle))]
fn a_value_loses_its_name_while_lanes_hold_it() {
    let thing = thing();
    let ends = Arc::new(AtomicU64::new(0));
    let holder = {
        let (thing, ends) = (thing.clone(), ends.clone());
        thread::spawn(move || {
            if let Some(hold) = Hold::take(&thing) {
                ends.fetch_add(hold.release().into(), Ordering::Relaxed);
            }
            drop(thing);
        })
    };
    let mine = Hold::adopt(thing.clone());
    set_nameless(&thing, Nameless::Yes);
    ends.fetch_add(mine.release().into(), Ordering::Relaxed);
    holder.join().expect("no panic");
    assert_eq!(ends.load(Ordering::Relaxed), 1, "ends");
    assert!(Hold::take(&thing).is_none(), "still alive");
    thing.shares.clear();
}

#[cfg(loom)]
mod loom_tests {
    use super::*;

    /// Two lanes take holds on a value that has none, so that the value moves to one of them or
    /// becomes spread. Meanwhile a third thread calls `end`, which evicts the value, or makes it
    /// dead if no other thread holds it.
    fn moves_while(end: fn(&Arc<Thing>) -> bool) {
        crate::schedules::check(2, move || {
            let thing = thing();
            assert!(!Hold::adopt(thing.clone()).release());
            let holders = [(); 2].map(|()| {
                let thing = thing.clone();
                thread::spawn(move || {
                    let Some(hold) = Hold::take(&thing) else { return false };
                    thread::yield_now();
                    let word = thing.holds.0.load(Ordering::Acquire);
                    assert_eq!(word & DEAD, 0, "dead while it is held");
                    assert!(!hold.release(), "it has a name");
                    true
                })
            });
            let dead = end(&thing);
            let held = holders.map(|holder| holder.join().expect("no panic"));
            if !dead {
                assert_eq!(held, [true; 2]);
                assert!(evict(&thing, 0), "nobody holds it any more");
            }
            assert!(Hold::take(&thing).is_none());
            thing.shares.clear();
        });
    }

    #[test]
    fn loom_a_moved_value_is_not_evicted_while_it_is_held() {
        moves_while(|thing| evict(thing, 0));
    }

    #[test]
    fn loom_a_moved_value_does_not_end_under_another_holder() {
        moves_while(|thing| {
            let Some(mine) = Hold::take(thing) else { return false };
            let ended = end_as_only_holder(thing);
            assert!(!mine.release(), "ended already, or with a name");
            ended
        });
    }

    #[test]
    fn loom_a_value_without_a_name_ends_once() {
        crate::schedules::check(3, a_value_loses_its_name_while_lanes_hold_it);
    }
}

#[cfg(shuttle)]
#[test]
fn shuttle_a_value_without_a_name_ends_once() {
    shuttle::check_random(a_value_loses_its_name_while_lanes_hold_it, 3000);
}
