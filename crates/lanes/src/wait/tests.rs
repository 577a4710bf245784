//! Tests of wait queues. With the threads of `std`, each wake-up wakes exactly the waiters that it
//! should. Under loom and shuttle, no waiter is forgotten.

use super::*;

/// The number of units that are free. All units are alike.
struct Budget(AtomicUsize);

impl Budget {
    fn take(&self) -> Option<()> {
        let mut left = self.0.load(Ordering::Relaxed);
        while left > 0 {
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            match self.0.compare_exchange(left, left - 1, acquire, relaxed) {
                Ok(_) => return Some(()),
                Err(now) => left = now,
            }
        }
        None
    }
    fn put(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

#[cfg(not(any(loom, shuttle)))]
mod production {
    use super::*;
    use crate::sync::unscheduled::atomic::AtomicU64;
    use std::time::Duration;

    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    #[test]
    fn an_available_unit_is_taken_without_waiting() {
        assert_eq!(WaitBuckets::new(4).wait_until(1, || Some(5)), 5);
    }

    #[test]
    fn one_thing_freed_wakes_one_waiter() {
        let (waits, budget, attempts) =
            (WaitBuckets::new(4), Budget(AtomicUsize::new(0)), AtomicU64::new(0));
        std::thread::scope(|s| {
            for key in 0..6 {
                let (waits, budget, attempts) = (&waits, &budget, &attempts);
                s.spawn(move || {
                    waits.wait_until(key, || {
                        attempts.fetch_add(1, Ordering::SeqCst);
                        budget.take()
                    })
                });
            }
            // Waits until all threads sleep, each after two attempts.
            until(|| waits.waiting() == 6 && attempts.load(Ordering::SeqCst) == 12);
            for freed in 1..=6 {
                budget.put();
                assert!(waits.wake_any(0));
                until(|| attempts.load(Ordering::SeqCst) == 12 + freed);
                assert_eq!(waits.waiting() as u64, 6 - freed);
            }
            assert!(!waits.wake_any(0));
        });
    }

    #[test]
    fn a_key_wakes_its_own_waiters_even_in_a_shared_bucket() {
        let (waits, budgets) = (WaitBuckets::new(1), [0, 0].map(|n| Budget(AtomicUsize::new(n))));
        std::thread::scope(|s| {
            let (waits, budgets) = (&waits, &budgets);
            let threads = [0, 1].map(|key: usize| {
                let thread = s.spawn(move || waits.wait_until(key as u64, || budgets[key].take()));
                until(|| waits.waiting() == key + 1);
                thread
            });
            let [first, second] = threads;
            budgets[1].put();
            assert!(waits.wake_one(1));
            second.join().expect("no panic");
            assert!(!first.is_finished());
            assert!(!waits.wake_one(1));
            budgets[0].put();
            assert!(waits.wake_one(0));
        });
    }

    #[test]
    fn all_waiters_can_be_woken_at_once() {
        let (waits, budget) = (WaitBuckets::new(2), Budget(AtomicUsize::new(0)));
        std::thread::scope(|s| {
            for key in 0..5 {
                let (waits, budget) = (&waits, &budget);
                s.spawn(move || waits.wait_until(key, || budget.take()));
            }
            until(|| waits.waiting() == 5);
            budget.0.store(5, Ordering::SeqCst);
            waits.wake_all();
        });
    }

    #[test]
    fn waking_all_wakes_each_waiter_once() {
        const WAITERS: usize = 10;
        let (waits, budget) = (WaitBuckets::new(1), Budget(AtomicUsize::new(0)));
        let attempts = AtomicUsize::new(0);
        let all_wait_after = |made: usize| {
            while attempts.load(Ordering::SeqCst) < made || waits.waiting() < WAITERS {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|s| {
            for key in 0..WAITERS as u64 {
                let (waits, budget, attempts) = (&waits, &budget, &attempts);
                s.spawn(move || {
                    waits.wait_until(key, || {
                        attempts.fetch_add(1, Ordering::SeqCst);
                        budget.take()
                    })
                });
            }
            // For each wait, a waiter makes one attempt before it joins the queue and one after.
            all_wait_after(2 * WAITERS);
            assert_eq!(waits.wake_all(), WAITERS);
            all_wait_after(4 * WAITERS);
            assert_eq!(attempts.load(Ordering::SeqCst), 4 * WAITERS);
            (0..WAITERS).for_each(|_| budget.put());
            waits.wake_all();
        });
    }

    #[test]
    fn a_small_budget_serves_many_threads() {
        let (waits, budget) = (WaitBuckets::new(8), Budget(AtomicUsize::new(2)));
        std::thread::scope(|s| {
            for key in 0..8 {
                let (waits, budget) = (&waits, &budget);
                s.spawn(move || {
                    for _ in 0..2000 {
                        waits.wait_until(key, || budget.take());
                        budget.put();
                        waits.wake_any(key);
                    }
                });
            }
        });
        assert_eq!((budget.0.load(Ordering::SeqCst), waits.waiting()), (2, 0));
    }
}

/// Runs threads that each take one unit of `budget` and give it back.
#[cfg(any(loom, shuttle))]
fn all_are_served(threads: u64, rounds: u32, budget: usize, buckets: usize) {
    use crate::sync::thread;
    let waits = Arc::new(WaitBuckets::new(buckets));
    let budget = Arc::new(Budget(AtomicUsize::new(budget)));
    let serve = move |waits: &WaitBuckets, budget: &Budget, key: u64| {
        for _ in 0..rounds {
            waits.wait_until(key, || budget.take());
            budget.put();
            waits.wake_any(key);
        }
    };
    let others: Vec<_> = (1..threads)
        .map(|key| {
            let (waits, budget) = (waits.clone(), budget.clone());
            thread::spawn(move || serve(&waits, &budget, key))
        })
        .collect();
    serve(&waits, &budget, 0);
    others.into_iter().for_each(|t| t.join().expect("no panic"));
    assert_eq!(waits.waiting(), 0);
}

#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::sync::thread;

    fn check(bound: usize, model: impl Fn() + Sync + Send + 'static) {
        crate::schedules::check(bound, model);
    }

    #[test]
    fn loom_no_waiter_is_left_behind() {
        check(3, || {
            let waits = Arc::new(WaitBuckets::new(1));
            let budget = Arc::new(Budget(AtomicUsize::new(0)));
            let waiter = {
                let (waits, budget) = (waits.clone(), budget.clone());
                thread::spawn(move || waits.wait_until(1, || budget.take()))
            };
            budget.put();
            waits.wake_one(1);
            waiter.join().expect("no panic");
        });
    }

    #[test]
    fn loom_a_waiter_that_finds_nothing_is_not_woken_again_by_the_same_call() {
        check(3, || {
            let waits = Arc::new(WaitBuckets::new(1));
            let budget = Arc::new(Budget(AtomicUsize::new(0)));
            let waiter = {
                let (waits, budget) = (waits.clone(), budget.clone());
                thread::spawn(move || waits.wait_until(1, || budget.take()))
            };
            assert!(waits.wake_all() <= 1);
            budget.put();
            waits.wake_all();
            waiter.join().expect("no panic");
        });
    }

    #[test]
    fn loom_two_waiters_for_one_unit_both_finish() {
        check(2, || all_are_served(2, 2, 1, 2));
        check(2, || all_are_served(3, 1, 1, 2));
    }

    #[test]
    fn loom_a_wake_up_not_needed_is_passed_on() {
        check(2, || {
            let waits = Arc::new(WaitBuckets::new(2));
            let budget = Arc::new(Budget(AtomicUsize::new(0)));
            let waiters: Vec<_> = (0..2)
                .map(|key| {
                    let (waits, budget) = (waits.clone(), budget.clone());
                    thread::spawn(move || waits.wait_until(key, || budget.take()))
                })
                .collect();
            // Each waiter takes one unit and keeps it. The second wake-up may pick a waiter whose
            // second attempt has already taken the first unit. In this case, that waiter must pass
            // the wake-up on to the other waiter.
            budget.put();
            waits.wake_any(0);
            budget.put();
            waits.wake_any(0);
            waiters.into_iter().for_each(|w| w.join().expect("no panic"));
        });
    }
}

#[cfg(shuttle)]
mod shuttle_tests {
    use super::*;

    #[test]
    fn shuttle_a_small_budget_serves_many_threads() {
        shuttle::check_random(|| all_are_served(6, 3, 2, 4), 3000);
        shuttle::check_pct(|| all_are_served(5, 2, 1, 2), 2000, 3);
    }
}
