//! The row budget limits how many rows may be under way at once, and so the memory that they need.
//! A thread takes one *unit* of the budget for a row.
//!
//! md has 256 stripes for this purpose. When all units are taken, writers wait; a policy determines
//! how they are woken. The units are implemented by [`lanefs_lanes::Budget`], whose documentation
//! proves that every waiter is woken.

use crate::counters::{Count, Counters};
use lanefs_lanes::{Budget, Wake};

/// Which waiters are woken when a unit of the row budget is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StripeWake {
    /// Wakes all waiters, as md does. All except one find no free unit and sleep again.
    All,
    /// Wakes one waiter. Waiters stand in several queues, and a hash of the row chooses the queue.
    #[default]
    One,
}

#[derive(Debug)]
pub(crate) struct RowBudget(Budget);

/// A unit of the budget, released when dropped.
#[derive(Debug)]
pub(crate) struct Unit<'a> {
    budget: &'a Budget,
    counters: &'a Counters,
    row: u64,
}

impl RowBudget {
    pub(crate) fn new(rows: usize, wake: StripeWake) -> RowBudget {
        let wake = match wake {
            StripeWake::All => Wake::All,
            StripeWake::One => Wake::One,
        };
        RowBudget(Budget::new(rows, wake))
    }

    /// Returns the number of units.
    pub(crate) fn rows(&self) -> usize {
        self.0.total()
    }

    /// Waits for a unit, which the caller needs for work on `row`.
    pub(crate) fn take<'a>(&'a self, row: u64, counters: &'a Counters) -> Unit<'a> {
        if let Some(sleeps) = self.0.take(row) {
            counters.add(Count::BudgetWait, 1);
            counters.add(Count::WakeUp, sleeps);
        }
        Unit { budget: &self.0, counters, row }
    }

    /// Returns whether no unit is taken. If so, a thread that takes a unit later sees the stores
    /// that the caller made before this call. This holds because a thread that takes a unit issues
    /// a memory fence before it reads the array's activity.
    pub(crate) fn none_taken(&self) -> bool {
        self.0.none_taken()
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
    use lanefs_lanes::sync::atomic::{AtomicUsize, Ordering};

    fn contend(wake: StripeWake) -> crate::counters::Statistics {
        let (budget, counters) = (RowBudget::new(2, wake), Counters::new());
        let inside = AtomicUsize::new(0);
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
        assert!(budget.none_taken());
        counters.sums()
    }

    #[test]
    fn waking_one_wakes_at_most_one_for_each_unit_freed() {
        let one = contend(StripeWake::One);
        assert_eq!(one.units_freed, 600);
        assert!(one.budget_waits > 0);
        assert!(one.budget_wake_ups <= one.units_freed, "{one:?}");
    }

    #[test]
    fn waking_all_wakes_more_threads_than_units() {
        // On a busy machine, threads may find a unit before they have to wait.
        let mut rounds = (0..20).map(|_| contend(StripeWake::All));
        let herd = rounds.find(|all| {
            assert_eq!(all.units_freed, 600);
            all.budget_wake_ups > 2 * all.units_freed
        });
        assert!(herd.is_some(), "20 rounds without it");
    }
}
