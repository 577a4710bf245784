//! Lanes: small numbers that threads have until they terminate.
//!
//! A thread gets the least used lane when it first needs a lane, and returns this lane when it
//! terminates. So short-lived threads use the same few lanes, whose lines are in the processors'
//! caches, and long-lived threads are spread over the lanes.
//!
//! One of a lane's threads is its *owner*, the others are guests. Some words of a lane are written
//! only by the lane's owner, which therefore needs fewer locked instructions.

use crate::pin_depth;
use crate::sync::unscheduled::Mutex;
use crate::sync::unscheduled::atomic::{AtomicUsize, Ordering};
use crate::world;
use std::cell::Cell;
use std::ops::Deref;

/// The largest number of lanes; if there are more threads, some share a lane.
pub const MAX_LANES: usize = world::LANES;

/// A lane's number, below [`MAX_LANES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u16);

/// The number of threads on each lane. The schedule checkers do not explore the lock of these
/// counts, because the choice of a lane is simple and each thread takes the lock only twice.
struct Registry {
    users: Mutex<[Users; MAX_LANES]>,
}

#[derive(Clone, Copy, Default)]
struct Users {
    threads: u32,
    /// Whether one of the threads is the owner.
    owned: bool,
}

world::global! {
    static REGISTRY: std::sync::Arc<Registry> =
        std::sync::Arc::new(Registry { users: Mutex::new([Users::default(); MAX_LANES]) })
}

world::local! { static LEASE: Lease = Lease::take() }

// A copy of `slot` in the thread's lease. Reading the lease itself is slower, since the lease is
// created at its first use and has a destructor.
world::constant_local! { static MINE: Cell<Option<LaneSlot>> = Cell::new(None) }

/// A thread's lane, and whether it is the lane's owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneSlot {
    pub(crate) lane: Lane,
    /// Whether the thread is the lane's owner. Only the owner writes the owner's words.
    pub(crate) owner: bool,
}

/// The highest lane that any thread ever had, plus one.
static GIVEN: AtomicUsize = AtomicUsize::new(1);

/// A thread's use of a lane, until the thread terminates.
struct Lease {
    slot: LaneSlot,
    registry: std::sync::Arc<Registry>,
}

impl Lease {
    fn take() -> Lease {
        let registry: std::sync::Arc<Registry> = REGISTRY.clone();
        let mut users = registry.users.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let used = |lane: &usize| (users[*lane].threads, users[*lane].owned);
        let least = (0..MAX_LANES).min_by_key(used).unwrap_or(0);
        users[least].threads += 1;
        let owner = !std::mem::replace(&mut users[least].owned, true);
        drop(users);
        GIVEN.fetch_max(least + 1, Ordering::Relaxed);
        Lease { slot: LaneSlot { lane: Lane(least as u16), owner }, registry }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let LaneSlot { lane, owner } = self.slot;
        let mut users = self.registry.users.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let users = &mut users[lane.index()];
        users.threads -= 1;
        // If a pin in another thread-local outlives the lease, the pin still uses the word that
        // only the lane's owner writes. In this case the thread stays the owner, and the lane never
        // gets another owner.
        if owner && !pin_depth::is_pinned() {
            users.owned = false;
            // If this thread runs further destructors, it uses the lane as a guest.
            let _ = MINE.try_with(|mine| mine.set(Some(LaneSlot { lane, owner: false })));
        }
    }
}

impl LaneSlot {
    /// Returns the calling thread's lane, and whether the thread is its owner.
    #[inline]
    pub(crate) fn current() -> LaneSlot {
        match MINE.with(Cell::get) {
            Some(slot) => slot,
            None => LaneSlot::leased(),
        }
    }

    #[cold]
    fn leased() -> LaneSlot {
        // A thread whose locals are already destroyed uses the first lane as a guest. This use is
        // always correct, since any lane may be shared.
        let guest = LaneSlot { lane: Lane::FIRST, owner: false };
        let slot = LEASE.try_with(|lease| lease.slot).unwrap_or(guest);
        MINE.with(|mine| mine.set(Some(slot)));
        slot
    }
}

impl Lane {
    /// The lane of threads whose thread-locals are already destroyed.
    pub(crate) const FIRST: Lane = Lane(0);

    /// Returns the calling thread's lane.
    #[inline]
    pub fn current() -> Lane {
        LaneSlot::current().lane
    }

    /// Returns the lane as an index below [`MAX_LANES`].
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the lanes that any thread ever had. They are few if there never were many threads at
    /// once.
    ///
    /// A thread that must see the slots of all lanes needs to read only the slots of these lanes.
    /// The condition is that the thread fences before this call, and that the writers fence after
    /// they write. If these fences make a slot's value visible to the thread, the thread also finds
    /// the slot's lane here, because the lane was given to a thread before its slot was written.
    pub fn given() -> impl ExactSizeIterator<Item = Lane> {
        // The checkers do not model `GIVEN`, so under the checkers all lanes are returned.
        let end = if cfg!(any(loom, shuttle)) { MAX_LANES } else { GIVEN.load(Ordering::Relaxed) };
        (0..end).map(|lane| Lane(lane as u16))
    }

    /// Returns all lanes, in order.
    pub fn all() -> impl Iterator<Item = Lane> {
        (0..MAX_LANES).map(|lane| Lane(lane as u16))
    }
}

/// A value on cache lines of its own. It is aligned to two lines, since processors prefetch lines
/// in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// One `T` for each lane, each on cache lines of its own.
#[derive(Debug)]
pub struct PerLane<T> {
    slots: Box<[Padded<T>]>,
}

impl<T> PerLane<T> {
    /// Creates a slot for each lane with `make`.
    pub fn new(mut make: impl FnMut(Lane) -> T) -> PerLane<T> {
        PerLane { slots: Lane::all().map(|lane| Padded(make(lane))).collect() }
    }

    /// Returns the calling thread's slot.
    #[inline]
    pub fn mine(&self) -> &T {
        self.of(Lane::current())
    }

    /// Returns the slot of `lane`.
    #[inline]
    pub fn of(&self, lane: Lane) -> &T {
        &self.slots[lane.index()].0
    }

    /// Returns all slots, in lane order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|p| &p.0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
