//! Models of the shared lock for the checkers: a writer excludes all others, no wake-up is lost,
//! and the release of a fast hold does not access the lock.

use super::*;
use crate::sync::{Arc, thread};

fn biased() -> SharedLock {
    let lock = SharedLock::new(Rank::Operation, 1);
    lock.bias.store(true, Ordering::Relaxed);
    lock.seen.store(TWO_LANES, Ordering::Relaxed);
    lock
}

#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;

    struct Guarded {
        lock: SharedLock,
        value: UnsafeCell<u32>,
    }

    impl Guarded {
        fn new() -> Arc<Guarded> {
            Arc::new(Guarded { lock: biased(), value: UnsafeCell::new(0) })
        }
        fn read(&self) {
            let _hold = self.lock.shared();
            self.value.with(|_| ());
        }
        fn write(&self) {
            let _hold = self.lock.exclusive();
            // SAFETY: loom's cell checks the exclusion that makes this sound.
            self.value.with_mut(|value| unsafe { *value += 1 });
        }
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        crate::schedules::check(3, model);
    }

    #[test]
    fn loom_readers_and_a_writer_exclude_each_other() {
        check(|| {
            let guarded = Guarded::new();
            let reader = {
                let guarded = guarded.clone();
                thread::spawn(move || guarded.read())
            };
            let second = {
                let guarded = guarded.clone();
                thread::spawn(move || guarded.read())
            };
            guarded.write();
            reader.join().expect("no panic");
            second.join().expect("no panic");
        });
    }

    #[test]
    fn loom_the_bias_comes_and_goes_between_two_writers() {
        check(|| {
            let guarded = Guarded::new();
            let reader = {
                let guarded = guarded.clone();
                thread::spawn(move || (0..3).for_each(|_| guarded.read()))
            };
            guarded.write();
            guarded.write();
            reader.join().expect("no panic");
        });
    }

    #[test]
    fn loom_a_failed_try_leaves_the_lock_as_it_was() {
        check(|| {
            let guarded = Guarded::new();
            let reader = {
                let guarded = guarded.clone();
                thread::spawn(move || guarded.read())
            };
            if let Some(_hold) = guarded.lock.try_exclusive() {
                // SAFETY: as in `write`.
                guarded.value.with_mut(|value| unsafe { *value += 1 });
            }
            guarded.write();
            reader.join().expect("no panic");
        });
    }

    #[test]
    fn loom_a_fast_hold_is_let_go_without_the_lock() {
        check(|| {
            let lock = Arc::new(biased());
            let reader = {
                let lock = lock.clone();
                thread::spawn(move || {
                    let visible = lock.enter();
                    // The writer frees the lock while the reader may still be releasing its slot.
                    drop(lock);
                    drop(visible);
                })
            };
            drop(lock.exclusive());
            drop(lock);
            reader.join().expect("no panic");
            assert_eq!(ROWS.iter().map(|row| row[0].load(Ordering::Relaxed)).max(), Some(0));
        });
    }
}

#[cfg(shuttle)]
mod shuttle_tests {
    use super::*;
    use crate::sync::unscheduled::atomic::AtomicUsize as Plain;

    #[test]
    fn shuttle_readers_and_writers_of_two_locks_exclude_each_other() {
        shuttle::check_random(
            || {
                let locks = Arc::new([biased(), biased()]);
                let inside = Arc::new([Plain::new(0), Plain::new(0)]);
                const WRITER: usize = 100;
                let threads: Vec<_> = (0..6)
                    .map(|me| {
                        let (locks, inside) = (locks.clone(), inside.clone());
                        thread::spawn(move || {
                            for round in 0..4 {
                                let which = (me + round) % 2;
                                let mine = if me < 2 { WRITER } else { 1 };
                                let shared = (mine == 1).then(|| locks[which].shared());
                                let exclusive = (mine > 1).then(|| locks[which].exclusive());
                                let others = inside[which].fetch_add(mine, Ordering::SeqCst);
                                assert!(if mine > 1 { others == 0 } else { others < WRITER });
                                thread::yield_now();
                                inside[which].fetch_sub(mine, Ordering::SeqCst);
                                drop((shared, exclusive));
                            }
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|t| t.join().expect("no panic"));
            },
            2000,
        );
    }
}
