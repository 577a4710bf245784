//! Counters to which threads of different lanes add without sharing a cache line.

use crate::lane::{Lane, LaneSlot, PerLane};
use crate::sync::unscheduled::atomic::{AtomicI64, Ordering};

/// A number: each thread adds to its lane's part, and a read sums all parts.
///
/// The schedule checkers do not explore counters, because a counter orders no other accesses and no
/// thread waits for it.
#[derive(Debug)]
pub struct LaneCounter {
    parts: PerLane<Part>,
}

#[derive(Debug, Default)]
struct Part {
    /// The sum that the lane's owner added. Only the owner writes this word.
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
        self.parts.of(lane).add(owner, delta);
    }

    /// Returns the sum over all lanes. It is exact only if no thread adds concurrently.
    pub fn sum(&self) -> i64 {
        Lane::given().map(|lane| self.parts.of(lane).sum()).fold(0, i64::wrapping_add)
    }
}

/// Several counters like [`LaneCounter`], next to each other on the cache lines of each lane.
#[derive(Debug)]
pub struct LaneCounters<const N: usize> {
    lanes: PerLane<[Part; N]>,
}

impl<const N: usize> Default for LaneCounters<N> {
    fn default() -> LaneCounters<N> {
        LaneCounters { lanes: PerLane::new(|_| std::array::from_fn(|_| Part::default())) }
    }
}

impl<const N: usize> LaneCounters<N> {
    /// Adds `delta` to counter `n` (below `N`) on the caller's lane.
    #[inline]
    pub fn add(&self, n: usize, delta: i64) {
        let slot = LaneSlot::current();
        self.lanes.of(slot.lane)[n].add(slot.owner, delta);
    }

    /// Returns the sums over all lanes. They are exact only if no thread adds concurrently.
    pub fn sums(&self) -> [i64; N] {
        std::array::from_fn(|n| {
            Lane::given().map(|lane| self.lanes.of(lane)[n].sum()).fold(0, i64::wrapping_add)
        })
    }
}

impl Part {
    #[inline]
    fn add(&self, is_owner: bool, delta: i64) {
        if is_owner {
            let sum = self.own.load(Ordering::Relaxed).wrapping_add(delta);
            self.own.store(sum, Ordering::Relaxed);
        } else {
            self.guests.fetch_add(delta, Ordering::Relaxed);
        }
    }

    fn sum(&self) -> i64 {
        let (own, guests) = (self.own.load(Ordering::Relaxed), self.guests.load(Ordering::Relaxed));
        own.wrapping_add(guests)
    }
}
