//! Epochs: a thread reads a published value under a pin without writing shared memory, and the
//! value is freed when no pin can see it any more.
//!
//! ```text
//! pin:     loop { e = epoch; owner: own[lane] = e; guest: guests[lane][e % 2] += 1
//!                 FENCE; if epoch == e { pinned in e } undo }
//! retire:  (unlinked already) FENCE; limbo[lane].push(value, epoch)
//! advance: e = epoch; FENCE; if there is no pin of e - 1 { CAS(epoch, e -> e + 1) }
//! free:    values retired in r, once epoch >= r + 2
//! ```
//!
//! *Invariant*: while the epoch is `e`, threads are pinned only in `e` and `e - 1`, so two counters
//! are enough for a lane's guests. The lane's owner has a word that no other thread writes, so its
//! pin needs only one locked instruction, and its unpin is a plain store. If a value is retired in
//! epoch `r`, a pin that can see the value started in `r` or earlier. (The fence of a later pin
//! comes after the retirement's fence, so the later pin finds the value unlinked.) The epoch
//! advances from `r + 1` to `r + 2` only when no pin of `r` is left.
//!
//! A pin writes only its own lane's line. All threads read the epoch's line, which rarely changes:
//! twice for every 8 to 1024 values that the busiest lane retires. This number of values grows with
//! the number of lanes ([`usual`]). A lane's retired values wait in a list of about this number of
//! values, or of 2 MiB if the values are large. For each value that the lane newly retires, it
//! frees the oldest value of the list. So the lane's new objects reuse the memory of its old
//! objects, and this memory does not pass through other lanes.

use crate::held::holds_leaf;
use crate::lane::{Lane, LaneSlot, MAX_LANES, Padded, PerLane};
use crate::limbo::{Limbo, Retired, usual};
use crate::pin_depth;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::world;
use std::cell::Cell;
use std::marker::PhantomData;

/// The words that are read and written by pins. The domain is a static without lazy initialisation,
/// so a pin needs neither a pointer to the domain nor a check whether it is initialised.
struct Domain {
    epoch: Padded<AtomicU64>,
    pins: [Padded<Pins>; MAX_LANES],
}

/// The pins of a lane's threads.
struct Pins {
    /// The epoch in which the owner is pinned, or `NOT_PINNED`. Only the owner writes it.
    own: AtomicU64,
    /// The number of pinned guests, by the parity of their epoch.
    guests: [AtomicU64; 2],
}

/// The value of `own` while the owner has no pin.
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

/// [`advance`] frees the values of another lane only this many epochs after the first epoch in
/// which they could be freed. By then an active lane has usually freed its values itself.
const PATIENCE: u64 = if cfg!(any(loom, shuttle)) { 2 } else { 8 };

world::global! { static LIMBO: PerLane<Limbo> = PerLane::new(|_| Limbo::new()) }

// The parity of the epoch in which a guest is pinned.
world::constant_local! { static PARITY: Cell<usize> = Cell::new(0) }

// Set when the lane's limbo list became full while the thread had a pin, or while no destructor was
// allowed to run. The thread then empties the list later.
world::constant_local! { static OWED: Cell<bool> = Cell::new(false) }

/// While a pin exists, no published value that its thread could see is freed. A thread holds no pin
/// across I/O or a wait for an operation lock.
#[derive(Debug)]
#[must_use = "dropping it ends the protection"]
pub struct Pin {
    _not_send: PhantomData<*const ()>,
}

/// Pins the calling thread's lane. Pins can be nested; an inner pin costs almost nothing.
#[inline]
pub fn pin() -> Pin {
    // The thread-local is read and written in separate short accesses, because the compiler turns
    // one long access into a call through a pointer.
    let depth = pin_depth::get();
    if depth == 0 {
        enter();
    }
    pin_depth::set(depth + 1);
    Pin { _not_send: PhantomData }
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
        // A store would be enough to write the word. The swap is used because the fence below must
        // follow a locked instruction. A thread that reads this word with Acquire also sees the
        // work that was released at the last unpin.
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

    /// Returns whether a thread is pinned in `epoch`, which is the epoch before the present one.
    fn is_pinned_in(&self, epoch: u64) -> bool {
        let own = self.own.load(Ordering::Acquire);
        let guests = self.guests[parity(epoch)].load(Ordering::Acquire);
        own == epoch || guests != 0
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        let left = pin_depth::get() - 1;
        pin_depth::set(left);
        if left > 0 {
            return;
        }
        let domain: &Domain = &DOMAIN;
        let LaneSlot { lane, owner } = LaneSlot::current();
        let pins = &domain.pins[lane.index()].0;
        // Release, so that reads under the pin come before the unpin.
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

/// Tries to advance the epoch, and frees values that no pin can see any more: values of this lane,
/// and values that other lanes retired some epochs ago. The committer calls this function now and
/// then. Returns whether the epoch advanced.
///
/// Destructors of retired values run in this function, at retirements and at unpins, but never
/// while the thread holds a lock of [`Rank::Guard`](crate::Rank::Guard) or of a higher rank. So a
/// destructor may take locks of these ranks, but no lock of a lower rank.
pub fn advance() -> bool {
    let domain: &Domain = &DOMAIN;
    let advanced = domain.try_advance();
    if holds_leaf() {
        return advanced;
    }
    let epoch = domain.epoch.load(Ordering::Acquire);
    let mine = Lane::current();
    for lane in Lane::given() {
        // Each lane frees the values that it retired, so that their memory stays in that lane's
        // part of the allocator. After some epochs, any lane frees the values of an idle lane.
        let patience = if lane == mine { 0 } else { PATIENCE };
        LIMBO.of(lane).collect(freeable(epoch).saturating_sub(patience), 0);
    }
    advanced
}

/// Returns the number of retired values that are not freed yet, over all lanes.
pub fn limbo() -> usize {
    Lane::given().map(|lane| LIMBO.of(lane).len()).sum()
}

/// Returns the last epoch whose retired values can be freed in epoch `now`, because no pin can see
/// them.
fn freeable(now: u64) -> u64 {
    now - 2
}

/// Adds `value` to the lane's limbo list. The value is freed some time after no pin can see it any
/// more. The value must be unlinked already, so that later pins do not find it.
pub(crate) fn retire(value: Retired) {
    let domain: &Domain = &DOMAIN;
    let read = || {
        // The closure runs under the limbo list's lock, so the fence follows the atomic update that
        // took the lock.
        world::fence_after_update();
        domain.epoch.load(Ordering::Relaxed)
    };
    if LIMBO.mine().push(value, read) {
        OWED.with(|owed| owed.set(true));
        // While this thread has a pin, nothing can be freed. The unpin will free the values.
        if !pin_depth::is_pinned() {
            pay();
        }
    }
}

/// Frees the lane's retired values that no pin can see, if destructors may run here.
#[cold]
fn pay() {
    if holds_leaf() {
        return;
    }
    OWED.with(|owed| owed.set(false));
    let domain: &Domain = &DOMAIN;
    let keep = usual();
    let collect = || LIMBO.mine().collect(freeable(domain.epoch.load(Ordering::Acquire)), keep);
    // All threads read the epoch. If other lanes have advanced the epoch far enough, this lane does
    // not advance it. So, however many lanes there are, the epoch changes only as often as the
    // busiest lane needs. If no thread is pinned, all values can be freed after two advances.
    if !collect() && domain.try_advance() {
        domain.try_advance();
        collect();
    }
}

impl Domain {
    fn try_advance(&self) -> bool {
        // Acquire: a thread that sees the new epoch also sees all the unpins that the advance
        // waited for.
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
