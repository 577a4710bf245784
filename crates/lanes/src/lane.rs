//! Lanes: small numbers that threads hold while they live.

use crate::sync::atomic::{AtomicUsize, Ordering};

/// How many lanes there are at most; threads beyond share.
pub const MAX_LANES: usize = 64;

/// A lane's number, below [`MAX_LANES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane(u16);

static NEXT: AtomicUsize = AtomicUsize::new(0);
thread_local! { static MINE: Lane = Lane((NEXT.fetch_add(1, Ordering::Relaxed) % MAX_LANES) as u16); }

impl Lane {
    /// The calling thread's lane.
    pub fn current() -> Lane {
        MINE.with(|l| *l)
    }

    /// As an index below [`MAX_LANES`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[repr(align(128))]
#[derive(Debug)]
struct Padded<T>(T);

/// One `T` for each lane, each on cache lines of its own.
#[derive(Debug)]
pub struct PerLane<T> {
    slots: Box<[Padded<T>]>,
}

impl<T> PerLane<T> {
    /// A slot for each lane, made by `make`.
    pub fn new(mut make: impl FnMut(Lane) -> T) -> PerLane<T> {
        PerLane { slots: (0..MAX_LANES).map(|i| Padded(make(Lane(i as u16)))).collect() }
    }

    /// The calling thread's slot.
    pub fn mine(&self) -> &T {
        self.of(Lane::current())
    }

    /// The slot of `lane`.
    pub fn of(&self, lane: Lane) -> &T {
        &self.slots[lane.index()].0
    }

    /// All slots, in lane order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|p| &p.0)
    }
}
