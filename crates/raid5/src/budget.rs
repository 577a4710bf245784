//! The row budget: how many rows may be under way at once, and so how much memory an array takes.
//!
//! Units lie in slots by lane. A thread takes from its own lane's, from another's only when that is
//! empty, and gives back to its own: with units for all, threads share no line. This is the resource
//! of which md has 256 stripes: when it runs out, writers wait, and how they are woken is a policy.
//!
//! *Nobody is left behind.* A unit is given back before waiters are looked for, with a fence
//! between; a waiter joins its queue before it looks at all slots once more, with a fence between
//! (`WaitBuckets`). So either it sees the unit or it is seen. A unit is for anybody, so whoever gives
//! one back looks at *all* queues, its own first: waking only the queue of the row that was let go
//! would leave waiters of another queue asleep, with units to be had.

use crate::counters::{Count, Counters};
use lanefs_lanes::sync::atomic::{AtomicUsize, Ordering, fence};
use lanefs_lanes::{PerLane, WaitBuckets};

/// Who is woken when a unit of the row budget comes free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StripeWake {
    /// Everybody who waits: all but one find nothing and go back to sleep. What md does.
    All,
    /// One waiter, from queues by the row's hash.
    #[default]
    One,
}

#[cfg(not(any(loom, shuttle)))]
const QUEUES: usize = 16;
#[cfg(any(loom, shuttle))]
const QUEUES: usize = 2;

#[derive(Debug)]
pub(crate) struct Budget {
    units: PerLane<AtomicUsize>,
    total: usize,
    waits: WaitBuckets,
    wake: StripeWake,
    #[cfg(any(loom, shuttle))]
    planted: Option<Planted>,
}

/// A bug that a model-checking test asks for.
#[cfg(any(loom, shuttle))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A unit given back wakes only the queue of its own row: md's livelock.
    WakesItsOwnQueueOnly,
    /// Waiters are looked for before the unit is given back.
    WakesFirst,
}

/// A unit taken; given back when dropped.
#[derive(Debug)]
pub(crate) struct Unit<'a> {
    budget: &'a Budget,
    counters: &'a Counters,
    row: u64,
}

impl Budget {
    pub(crate) fn new(total: usize, wake: StripeWake) -> Budget {
        let total = total.max(1);
        let lanes = lanefs_lanes::MAX_LANES;
        let share = |lane: usize| total / lanes + usize::from(lane < total % lanes);
        let queues = if wake == StripeWake::All { 1 } else { QUEUES };
        Budget {
            units: PerLane::new(|lane| AtomicUsize::new(share(lane.index()))),
            total,
            waits: WaitBuckets::new(queues),
            wake,
            #[cfg(any(loom, shuttle))]
            planted: None,
        }
    }

    /// Waits for a unit, to work on `row`.
    pub(crate) fn take<'a>(&'a self, row: u64, counters: &'a Counters) -> Unit<'a> {
        let mut attempts = 0;
        self.waits.wait_until(row, || {
            attempts += 1;
            self.try_take()
        });
        if attempts > 1 {
            counters.add(Count::BudgetWait, 1);
            // One attempt before the queue, then two for each sleep: before it and after.
            counters.add(Count::WakeUp, (attempts - 1) / 2);
        }
        Unit { budget: self, counters, row }
    }

    fn try_take(&self) -> Option<()> {
        let take = |slot: &AtomicUsize| {
            let mut left = slot.load(Ordering::Relaxed);
            while left > 0 {
                let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
                match slot.compare_exchange_weak(left, left - 1, acquire, relaxed) {
                    Ok(_) => return Some(()),
                    Err(now) => left = now,
                }
            }
            None
        };
        take(self.units.mine()).or_else(|| self.units.iter().find_map(take))
    }

    fn give_back(&self, row: u64) {
        #[cfg(any(loom, shuttle))]
        if self.planted == Some(Planted::WakesFirst) {
            self.waits.wake_any(row);
            self.units.mine().fetch_add(1, Ordering::Release);
            return;
        }
        self.units.mine().fetch_add(1, Ordering::Release);
        #[cfg(any(loom, shuttle))]
        if self.planted == Some(Planted::WakesItsOwnQueueOnly) {
            self.waits.wake_one(row);
            return;
        }
        match self.wake {
            StripeWake::All => self.waits.wake_all(),
            StripeWake::One => {
                self.waits.wake_any(row);
            }
        }
    }

    /// Whether no unit is taken, so that nobody is within a write who did not look at what the
    /// caller stored before this: a writer takes its unit, fences, then looks.
    pub(crate) fn all_at_home(&self) -> bool {
        fence(Ordering::SeqCst);
        let home: usize = self.units.iter().map(|slot| slot.load(Ordering::Acquire)).sum();
        home >= self.total
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        self.counters.add(Count::UnitFreed, 1);
        self.budget.give_back(self.row);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize as Plain;

    fn crowd(wake: StripeWake) -> crate::Statistics {
        let (budget, counters) = (Budget::new(2, wake), Counters::new());
        let inside = Plain::new(0);
        std::thread::scope(|s| {
            for thread in 0..12u64 {
                let (budget, counters, inside) = (&budget, &counters, &inside);
                s.spawn(move || {
                    for round in 0..50 {
                        let _unit = budget.take(thread * 50 + round, counters);
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                        std::thread::sleep(std::time::Duration::from_micros(20));
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(budget.all_at_home());
        counters.sums()
    }

    #[test]
    fn waking_one_wakes_at_most_one_for_each_unit_freed() {
        let one = crowd(StripeWake::One);
        assert_eq!(one.units_freed, 600);
        assert!(one.budget_waits > 0);
        assert!(one.budget_wake_ups <= one.units_freed, "{one:?}");
    }

    #[test]
    fn waking_all_wakes_a_herd() {
        let all = crowd(StripeWake::All);
        assert_eq!(all.units_freed, 600);
        assert!(all.budget_wake_ups > 2 * all.units_freed, "{all:?}");
    }

    #[test]
    fn units_of_other_lanes_are_found() {
        let (budget, counters) = (Budget::new(3, StripeWake::One), Counters::new());
        let units = [(); 3].map(|()| budget.take(0, &counters));
        assert!(budget.try_take().is_none() && !budget.all_at_home());
        drop(units);
        assert!(budget.all_at_home());
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model {
    use super::*;
    use lanefs_lanes::sync::{Arc, thread};

    /// Threads of different rows that each take one of `total` units and give it back.
    fn all_are_served(threads: u64, rounds: u64, total: usize, planted: Option<Planted>) {
        let budget = Arc::new(Budget { planted, ..Budget::new(total, StripeWake::One) });
        let serve = move |budget: &Budget, first: u64| {
            let counters = Counters::new();
            for round in 0..rounds {
                drop(budget.take(first + round, &counters));
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
        assert!(budget.all_at_home());
    }

    #[cfg(loom)]
    mod loom_tests {
        use super::*;
        use std::process::Command;

        const SERVED: &str = "budget::model::loom_tests::loom_nobody_is_left_behind";
        const VARIABLE: &str = "RAID5_PLANTED";

        fn planted() -> Option<Planted> {
            match std::env::var(VARIABLE).as_deref() {
                Ok("queue") => Some(Planted::WakesItsOwnQueueOnly),
                Ok("first") => Some(Planted::WakesFirst),
                _ => None,
            }
        }

        #[test]
        fn loom_nobody_is_left_behind() {
            let planted = planted();
            let schedules = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
            let counted = schedules.clone();
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(2);
            builder.check(move || {
                let n = counted.fetch_add(1, Ordering::Relaxed) + 1;
                if planted.is_some() {
                    println!("schedule {n}");
                }
                all_are_served(3, 1, 1, planted);
            });
            println!("{} schedules", schedules.load(Ordering::Relaxed));
        }

        /// In a process of its own, since loom aborts when unwinding meets a second panic.
        fn finds(which: &str) {
            let output = Command::new(std::env::current_exe().expect("a path"))
                .args([SERVED, "--exact", "--nocapture"])
                .env(VARIABLE, which)
                .env("RUST_BACKTRACE", "0")
                .output()
                .expect("the test program runs");
            let said =
                String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{which} is not found");
            assert!(said.contains("deadlock"), "{said}");
            let last = said.lines().rfind(|line| line.starts_with("schedule "));
            println!("{which}: found at {}", last.unwrap_or("the first schedule"));
        }

        #[test]
        fn loom_finds_a_unit_that_wakes_its_own_queue_only() {
            finds("queue");
        }

        #[test]
        fn loom_finds_a_waker_that_looks_too_early() {
            finds("first");
        }
    }

    #[cfg(shuttle)]
    mod shuttle_tests {
        use super::*;
        use crate::planted::finds;

        #[test]
        fn shuttle_nobody_is_left_behind_in_the_budget() {
            shuttle::check_random(|| all_are_served(5, 3, 2, None), 5000);
            shuttle::check_pct(|| all_are_served(4, 2, 1, None), 5000, 3);
        }

        #[test]
        fn shuttle_finds_a_unit_that_wakes_its_own_queue_only() {
            finds(5000, || all_are_served(4, 2, 1, Some(Planted::WakesItsOwnQueueOnly)));
        }

        #[test]
        fn shuttle_finds_a_waker_that_looks_too_early() {
            finds(5000, || all_are_served(4, 2, 1, Some(Planted::WakesFirst)));
        }
    }
}
