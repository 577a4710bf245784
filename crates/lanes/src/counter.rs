//! Counters that lanes add to without a shared line.

use crate::lane::LaneSlot;
use crate::sync::unscheduled::atomic::{AtomicI64, Ordering};
use crate::{Lane, PerLane};

/// A number that is added to on the caller's lane and summed when read.
///
/// It orders nothing and no thread waits for it, so the checkers do not explore it.
#[derive(Debug)]
pub struct LaneCounter {
    parts: PerLane<Part>,
}

#[derive(Debug)]
struct Part {
    /// The sum that the lane's owner added: written by the owner alone.
    own: AtomicI64,
    guests: AtomicI64,
}

impl LaneCounter {
    /// Starts at `value`.
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

    /// The sum over all lanes: exact if no thread adds meanwhile.
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
