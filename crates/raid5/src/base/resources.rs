//! What a request takes for a while: a unit of the row budget, and buffers.
//!
//! The row budget limits how many rows may be under way at once, and so the memory that they need.
//! A thread takes one *unit* of the budget for a row.
//!
//! md has 256 stripes for this purpose. When all units are taken, writers wait; a policy determines
//! how they are woken. The units are implemented by [`lanefs_lanes::Budget`], whose documentation
//! proves that every waiter is woken.
//!
//! When a request ends, its thread's lane keeps the buffers for later requests.

use crate::base::{Count, Counters};
use lanefs_lanes::{Budget, Mutex, PerLane, Rank, Wake};
use std::ops::{Deref, DerefMut};

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

/// The number of buffers that a lane keeps.
const KEPT: usize = 8;

#[derive(Debug)]
pub(crate) struct Scratch {
    lanes: PerLane<Mutex<Vec<Vec<u8>>>>,
}

/// A buffer with undefined contents; returned to its lane when dropped.
#[derive(Debug)]
pub(crate) struct Buffer<'a> {
    scratch: &'a Scratch,
    bytes: Vec<u8>,
    len: usize,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { lanes: PerLane::new(|_| Mutex::new(Rank::LaneList, Vec::new())) }
    }

    pub(crate) fn take(&self, len: u64) -> Buffer<'_> {
        let len = len as usize;
        let mut bytes = self.lanes.mine().lock().pop().unwrap_or_default();
        if bytes.len() < len {
            bytes = vec![0; len];
        }
        Buffer { scratch: self, bytes, len }
    }
}

impl Deref for Buffer<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        let mut kept = self.scratch.lanes.mine().lock();
        if kept.len() < KEPT {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
