//! Counters that lanes add to without meeting.

use crate::PerLane;
use crate::sync::atomic::{AtomicI64, Ordering};

/// A number that is added to on the caller's lane and summed when read.
#[derive(Debug)]
pub struct LaneCounter {
    parts: PerLane<AtomicI64>,
}

impl LaneCounter {
    /// Starts at `value`.
    pub fn new(value: i64) -> LaneCounter {
        let counter = LaneCounter { parts: PerLane::new(|_| AtomicI64::new(0)) };
        counter.add(value);
        counter
    }

    /// Adds `delta`, which may be negative, on the caller's lane.
    pub fn add(&self, delta: i64) {
        self.parts.mine().fetch_add(delta, Ordering::Relaxed);
    }

    /// The sum over all lanes: exact when nobody adds meanwhile.
    pub fn sum(&self) -> i64 {
        self.parts.iter().map(|p| p.load(Ordering::Relaxed)).sum()
    }
}
