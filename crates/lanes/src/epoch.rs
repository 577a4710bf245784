//! Epochs: a published value can be read under a pin without a shared write, and is freed once no
//! pin can see it any more.
//!
//! ```text
//! pin:     loop { e = epoch; owner: own[lane] = e; guest: guests[lane][e % 2] += 1
//!                 FENCE; if epoch == e { pinned in e } undo }
//! retire:  (unlinked already) FENCE; limbo[lane].push(value, epoch)
//! advance: e = epoch; FENCE; if there is no pin of e - 1 { CAS(epoch, e -> e + 1) }
//! free:    values retired in r, once epoch >= r + 2
//! ```
//!
//! *Invariant*: while the epoch is `e`, threads are pinned in `e` and `e - 1` only, so two counters
//! are enough for a lane's guests. The lane's owner has a word that no other thread writes: its pin
//! then has one locked instruction, and the end of the pin is a plain store. A pin that can see a
//! retired value is of its epoch or an earlier one: had it been later, its fence would come after
//! the retirement's, and it would find the value unlinked. Leaving epoch `r + 1` for `r + 2` needs
//! all pins of `r` gone.
//!
//! A pin writes its own lane's line and no other. All threads read the epoch's line, which changes
//! seldom: once or twice for each 8 to 16 values that the busiest lane retires.

use crate::held::holds_leaf;
use crate::lane::LaneSlot;
use crate::limbo::{Limbo, Retired, crowded};
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::{Lane, MAX_LANES, Padded, PerLane, world};
use std::cell::Cell;
use std::marker::PhantomData;

/// The words that pins read and write. A static, not behind a pointer or a lazy initialisation: a
/// pin pays for neither.
struct Domain {
    epoch: Padded<AtomicU64>,
    pins: [Padded<Pins>; MAX_LANES],
}

/// Pins of a lane's threads.
struct Pins {
    /// The epoch that the owner is pinned in, or `NOT_PINNED`. Written by the owner alone.
    own: AtomicU64,
    /// Guests that are pinned, by the parity of their epoch.
    guests: [AtomicU64; 2],
}

/// No epoch.
const NOT_PINNED: u64 = 0;

world::constant_global! {
    static DOMAIN: Domain = Domain {
        epoch: Padded(AtomicU64::new(2)),
        pins: world::each_lane!(Padded(Pins {
            own: AtomicU64::new(NOT_PINNED),
            guests: [AtomicU64::new(0), AtomicU64::new(0)],
        })),
    }
}

world::global! { static LIMBO: PerLane<Limbo> = PerLane::new(|_| Limbo::new()) }

// How many pins the thread has; other threads see only the outermost.
world::constant_local! { static DEPTH: Cell<u32> = Cell::new(0) }

// For a guest that is pinned: the parity of its epoch.
world::constant_local! { static PARITY: Cell<usize> = Cell::new(0) }

// The lane's limbo list was crowded under a pin, or where no destructor may run: the thread empties
// it later.
world::constant_local! { static OWED: Cell<bool> = Cell::new(false) }

/// While it lives, no published value that this thread could see is freed. Not held across I/O or a
/// wait for an operation lock.
#[derive(Debug)]
#[must_use = "dropping it ends the protection"]
pub struct Pin {
    _not_send: PhantomData<*const ()>,
}

/// Pins the calling thread's lane. Pins nest; an inner one costs next to nothing.
#[inline]
pub fn pin() -> Pin {
    // Several short accesses to the thread-local: one long access would be a call through a
    // pointer.
    let depth = DEPTH.with(Cell::get);
    if depth == 0 {
        enter();
    }
    DEPTH.with(|mine| mine.set(depth + 1));
    Pin { _not_send: PhantomData }
}

/// Whether the calling thread has a pin.
pub(crate) fn is_pinned() -> bool {
    DEPTH.try_with(|depth| depth.get() != 0).unwrap_or(false)
}

#[inline]
fn enter() {
    let domain: &Domain = &DOMAIN;
    let LaneSlot { lane, owner } = LaneSlot::current();
    let pins = &domain.pins[lane.index()].0;
    if !owner {
        return pins.enter_as_guest(&domain.epoch);
    }
    loop {
        let epoch = domain.epoch.load(Ordering::Relaxed);
        // An update though a store would do: it is the fence's locked instruction. A thread that
        // acquires it also acquires the work that the end of the last pin released.
        pins.own.swap(epoch, Ordering::Relaxed);
        world::fence_after_update();
        if domain.epoch.load(Ordering::Acquire) == epoch {
            return;
        }
        pins.own.store(NOT_PINNED, Ordering::Release);
    }
}

fn parity(epoch: u64) -> usize {
    (epoch % 2) as usize
}

impl Pins {
    #[cold]
    fn enter_as_guest(&self, now: &AtomicU64) {
        loop {
            let epoch = now.load(Ordering::Relaxed);
            let guests = &self.guests[parity(epoch)];
            guests.fetch_add(1, Ordering::Relaxed);
            world::fence_after_update();
            if now.load(Ordering::Acquire) == epoch {
                return PARITY.with(|mine| mine.set(parity(epoch)));
            }
            guests.fetch_sub(1, Ordering::Release);
        }
    }

    /// Whether a thread is pinned in `epoch`, the one before the present.
    fn is_pinned_in(&self, epoch: u64) -> bool {
        let own = self.own.load(Ordering::Acquire);
        let guests = self.guests[parity(epoch)].load(Ordering::Acquire);
        own == epoch || guests != 0
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        let left = DEPTH.with(Cell::get) - 1;
        DEPTH.with(|mine| mine.set(left));
        if left > 0 {
            return;
        }
        let domain: &Domain = &DOMAIN;
        let LaneSlot { lane, owner } = LaneSlot::current();
        let pins = &domain.pins[lane.index()].0;
        // Release: reads under the pin come before the pin counts as gone.
        if owner {
            pins.own.store(NOT_PINNED, Ordering::Release);
        } else {
            pins.guests[PARITY.with(Cell::get)].fetch_sub(1, Ordering::Release);
        }
        if OWED.with(Cell::get) {
            pay();
        }
    }
}

/// Tries to begin the next epoch, and frees values that no pin can see any more: this lane's, and
/// those that other lanes have left for some epochs. The committer calls it now and then. Returns
/// true if the epoch advanced.
///
/// Destructors of retired values run here, where values are retired, and where pins end, but not
/// while the thread holds a state guard or a lock behind it. So a destructor may take a state
/// guard, but no lock that comes before it.
pub fn advance() -> bool {
    let domain: &Domain = &DOMAIN;
    let advanced = domain.try_advance();
    if holds_leaf() {
        return advanced;
    }
    let epoch = domain.epoch.load(Ordering::Acquire);
    let mine = Lane::current();
    for lane in Lane::given() {
        // A lane frees its own values, into its own part of the allocator. After a while any lane
        // frees the values of an idle one.
        let patience = if lane == mine { 0 } else { 2 };
        LIMBO.of(lane).collect(freeable(epoch).saturating_sub(patience));
    }
    advanced
}

/// How many retired values wait to be freed, over all lanes.
pub fn limbo() -> usize {
    Lane::given().map(|lane| LIMBO.of(lane).len()).sum()
}

/// The last epoch whose retired values no pin can see in epoch `now`.
fn freeable(now: u64) -> u64 {
    now - 2
}

/// Frees `value` once no pin can see it. It must be unlinked already: a later pin does not find it.
pub(crate) fn retire(value: Retired) {
    let domain: &Domain = &DOMAIN;
    let read = || {
        // The fence's update is that of the limbo's lock, under which this runs.
        world::fence_after_update();
        domain.epoch.load(Ordering::Relaxed)
    };
    if LIMBO.mine().push(value, read) {
        OWED.with(|owed| owed.set(true));
        // The thread's own pin would prevent it; the values are then freed at the end of that pin.
        if !is_pinned() {
            pay();
        }
    }
}

/// Frees retired values of the lane that no pin can see, if destructors may run here.
#[cold]
fn pay() {
    if holds_leaf() {
        return;
    }
    OWED.with(|owed| owed.set(false));
    let domain: &Domain = &DOMAIN;
    let collect = || LIMBO.mine().collect(freeable(domain.epoch.load(Ordering::Acquire)));
    // All threads read the epoch. If other lanes have moved it far enough, it is not moved once
    // more: so it changes as often as the busiest lane needs, however many lanes there are. Two
    // epochs free all values, if no thread is pinned.
    if collect() < crowded() / 2 && domain.try_advance() {
        domain.try_advance();
        collect();
    }
}

impl Domain {
    fn try_advance(&self) -> bool {
        // Acquire: the new epoch is seen together with the ends of all pins that it waited for.
        let epoch = self.epoch.load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        let pinned = |lane: Lane| self.pins[lane.index()].0.is_pinned_in(epoch - 1);
        if Lane::given().any(pinned) {
            return false;
        }
        let (acq_rel, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.epoch.compare_exchange(epoch, epoch + 1, acq_rel, relaxed).is_ok()
    }
}
