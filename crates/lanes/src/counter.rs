//! Counters to which lanes add without a shared line.

use crate::lane::{Lane, LaneSlot, PerLane};
use crate::sync::unscheduled::atomic::{AtomicI64, Ordering};

/// A number: each thread adds to its lane's part, and a read sums all parts.
///
/// It orders no other accesses and no thread waits for it, so the schedule checkers do not explore
/// it.
#[derive(Debug)]
pub struct LaneCounter {
    parts: PerLane<Part>,
}

#[derive(Debug)]
struct Part {
    /// The sum added by the lane's owner, which alone writes it.
    own: AtomicI64,
    guests: AtomicI64,
}

impl LaneCounter {
    /// Creates a counter with `value`.
    pub fn new(value: i64) -> LaneCounter {
        let part = |_| Part { own: AtomicI64::new(0), guests: AtomicI64::new(0) };
        let counter = LaneCounter { parts: PerLane::new(part) };
        counter.add(value);
        counter
    }

    /// Adds `delta`, which may be negative, on the caller's lane.
    #[inline]
    pub fn add(&self, delta: i64) {
        let LaneSlot { lane, owner } = LaneSlot::current();
        let part = self.parts.of(lane);
        if owner {
            let sum = part.own.load(Ordering::Relaxed).wrapping_add(delta);
            part.own.store(sum, Ordering::Relaxed);
        } else {
            part.guests.fetch_add(delta, Ordering::Relaxed);
        }
    }

    /// Returns the sum over all lanes: exact if no thread adds concurrently.
    pub fn sum(&self) -> i64 {
        Lane::given().map(|lane| self.parts.of(lane).sum()).fold(0, i64::wrapping_add)
    }
}

impl Part {
    fn sum(&self) -> i64 {
        let (own, guests) = (self.own.load(Ordering::Relaxed), self.guests.load(Ordering::Relaxed));
        own.wrapping_add(guests)
    }
}
