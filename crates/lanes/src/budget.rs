//! A budget: a number of equal units that threads take and give back. If all units are taken,
//! threads wait.
//!
//! Each lane has a slot with some of the units. A thread takes a unit from its lane's slot. Only if
//! this slot is empty does it take one from another lane's slot. A thread gives units back to its
//! lane's slot. If there are enough units for all threads, the threads share no cache line.
//!
//! *No waiter is forgotten.* A thread gives back a unit, fences, and then searches for waiters. A
//! waiter joins its queue, fences, and then checks all slots once more ([`WaitBuckets`]). So either
//! the waiter sees the unit, or the other thread sees the waiter. Any waiter can use any unit. So
//! the thread that gives a unit back searches *all* queues, beginning with the queue of its key. If
//! it searched only that queue, waiters in another queue would stay asleep while units are free.

use crate::lane::{MAX_LANES, PerLane};
use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::wait::WaitBuckets;

/// Which waiters are woken when a unit is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wake {
    /// Wakes all waiters. All except one find no unit and sleep again.
    All,
    /// Wakes one waiter. There are several queues, and the hash of a waiter's key chooses its
    /// queue.
    #[default]
    One,
}

#[cfg(not(any(loom, shuttle)))]
const QUEUES: usize = 16;
#[cfg(any(loom, shuttle))]
const QUEUES: usize = 2;

/// A number of equal units that threads take and give back. If no unit is free, threads wait.
#[derive(Debug)]
pub struct Budget {
    units: PerLane<AtomicUsize>,
    total: usize,
    waits: WaitBuckets,
    wake: Wake,
}

impl Budget {
    /// Creates a budget of `total` units, or of one unit if `total` is 0.
    pub fn new(total: usize, wake: Wake) -> Budget {
        let total = total.max(1);
        let share = |lane: usize| total / MAX_LANES + usize::from(lane < total % MAX_LANES);
        let queues = if wake == Wake::All { 1 } else { QUEUES };
        Budget {
            units: PerLane::new(|lane| AtomicUsize::new(share(lane.index()))),
            total,
            waits: WaitBuckets::new(queues),
            wake,
        }
    }

    /// Returns the number of all units, free and taken.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Takes a unit. If none is free, waits in the queue that `key` chooses. Returns how many times
    /// the thread slept, or `None` if it did not have to wait.
    pub fn take(&self, key: u64) -> Option<u64> {
        let mut attempts = 0;
        self.waits.wait_until(key, || {
            attempts += 1;
            self.try_take()
        });
        // The thread tries once before it joins the queue. After that it tries once before and once
        // after each sleep.
        (attempts > 1).then(|| (attempts - 1) / 2)
    }

    /// Takes a unit, if one is free.
    pub fn try_take(&self) -> Option<()> {
        let take = |slot: &AtomicUsize| {
            let mut left = slot.load(Ordering::Relaxed);
            while left > 0 {
                let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
                match slot.compare_exchange(left, left - 1, acquire, relaxed) {
                    Ok(_) => return Some(()),
                    Err(now) => left = now,
                }
            }
            None
        };
        take(self.units.mine()).or_else(|| self.units.iter().find_map(take))
    }

    /// Gives a unit back, and wakes the waiters that [`Wake`] selects.
    pub fn give_back(&self, key: u64) {
        self.units.mine().fetch_add(1, Ordering::Release);
        match self.wake {
            Wake::All => {
                self.waits.wake_all();
            }
            Wake::One => {
                self.waits.wake_any(key);
            }
        }
    }

    /// Returns whether no unit is taken. If this function returns true, and a thread later takes a
    /// unit and then fences, that thread's reads after the fence see all stores that the caller
    /// made before this call.
    pub fn none_taken(&self) -> bool {
        fence(Ordering::SeqCst);
        let present: usize = self.units.iter().map(|slot| slot.load(Ordering::Acquire)).sum();
        present >= self.total
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn units_of_other_lanes_are_found() {
        let budget = Budget::new(3, Wake::One);
        for _ in 0..3 {
            assert_eq!(budget.take(0), None);
        }
        assert!(budget.try_take().is_none() && !budget.none_taken());
        (0..3).for_each(|key| budget.give_back(key));
        assert!(budget.none_taken());
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use crate::sync::{Arc, thread};

    /// Runs threads with different keys. Each thread takes one of `total` units and gives it back.
    fn all_are_served(threads: u64, rounds: u64, total: usize) {
        let budget = Arc::new(Budget::new(total, Wake::One));
        let serve = move |budget: &Budget, first: u64| {
            for round in 0..rounds {
                budget.take(first + round);
                budget.give_back(first + round);
            }
        };
        let others: Vec<_> = (1..threads)
            .map(|key| {
                let budget = budget.clone();
                thread::spawn(move || serve(&budget, key))
            })
            .collect();
        serve(&budget, 0);
        others.into_iter().for_each(|t| t.join().expect("no panic"));
        assert!(budget.none_taken());
    }

    #[cfg(loom)]
    mod loom_tests {
        use super::*;

        #[test]
        fn loom_no_waiter_is_left_behind_in_a_budget() {
            crate::schedules::check(2, || all_are_served(3, 1, 1));
        }
    }

    #[cfg(shuttle)]
    mod shuttle_tests {
        use super::*;

        #[test]
        fn shuttle_no_waiter_is_left_behind_in_a_budget() {
            shuttle::check_random(|| all_are_served(5, 3, 2), 5000);
            shuttle::check_pct(|| all_are_served(4, 2, 1), 5000, 3);
        }
    }
}
