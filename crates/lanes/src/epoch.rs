//! Epochs: what is published can be read under a pin without a shared write, and is freed when
//! no pin can see it any more.
//!
//! ```text
//! pin:     loop { e = epoch; pins[lane][e % 2] += 1; FENCE; if epoch == e { pinned in e } undo }
//! retire:  (unlinked already) FENCE; limbo[lane].push(value, epoch)
//! advance: e = epoch; FENCE; if nobody is pinned in e - 1 { CAS(epoch, e -> e + 1) }
//! free:    values retired in r, once epoch >= r + 2
//! ```
//!
//! *Invariant*: while the epoch is `e`, threads are pinned in `e` and `e - 1` only, so two
//! counters per lane are enough. A pin that can see a retired value is of its epoch or an earlier
//! one: had it been later, its fence would come after the retirement's, and it would find the
//! value unlinked. Leaving epoch `r + 1` for `r + 2` needs all pins of `r` gone.
//!
//! A pin writes its own lane's line and no other; all read the epoch's line, which changes seldom:
//! once for each dozen or so of values that the busiest lane retires.

use crate::held::holds_leaf;
use crate::limbo::{CROWDED, Limbo, Retired};
use crate::plant::{self, Step};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Lane, Padded, PerLane, world};
use std::cell::Cell;
use std::marker::PhantomData;

struct Domain {
    epoch: Padded<AtomicU64>,
    /// Threads pinned on each lane, by the parity of their epoch.
    pins: PerLane<[AtomicU64; 2]>,
    limbo: PerLane<Limbo>,
}

world::global! {
    static DOMAIN: Domain = Domain {
        epoch: Padded(AtomicU64::new(2)),
        pins: PerLane::new(|_| [AtomicU64::new(0), AtomicU64::new(0)]),
        limbo: PerLane::new(|_| Limbo::new()),
    }
}

/// A thread's pins: only the outermost is counted on the lane.
#[derive(Clone, Copy)]
struct Nest {
    depth: u32,
    lane: Lane,
    parity: usize,
}

world::constant_local! { static NEST: Cell<Option<Nest>> = Cell::new(None) }

// The lane's limbo was crowded where no destructor may run: the thread empties it later.
world::constant_local! { static OWED: Cell<bool> = Cell::new(false) }

/// While it lives, nothing published that this thread could see is freed. Not held across I/O
/// or a wait for an operation lock.
#[derive(Debug)]
#[must_use = "dropping it ends the protection"]
pub struct Pin {
    _not_send: PhantomData<*const ()>,
}

/// Pins the calling thread's lane. Pins nest; an inner one costs next to nothing.
#[inline]
pub fn pin() -> Pin {
    NEST.with(|nest| {
        let next = match nest.get() {
            Some(outer) => Nest { depth: outer.depth + 1, ..outer },
            None => enter(),
        };
        nest.set(Some(next));
    });
    Pin { _not_send: PhantomData }
}

fn enter() -> Nest {
    let domain: &Domain = &DOMAIN;
    let lane = Lane::current();
    loop {
        let epoch = domain.epoch.load(Ordering::Relaxed);
        let parity = parity(epoch);
        let pins = &domain.pins.of(lane)[parity];
        pins.fetch_add(1, Ordering::Relaxed);
        plant::fence_after_update(Step::PinFence);
        if domain.epoch.load(Ordering::Acquire) == epoch {
            return Nest { depth: 1, lane, parity };
        }
        pins.fetch_sub(1, Ordering::Release);
    }
}

fn parity(epoch: u64) -> usize {
    (epoch % 2) as usize
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        NEST.with(|nest| match nest.get() {
            Some(Nest { depth: 1, lane, parity }) => {
                nest.set(None);
                // Release: what was read under the pin was read before it counts as gone.
                DOMAIN.pins.of(lane)[parity].fetch_sub(1, Ordering::Release);
                if OWED.with(Cell::get) {
                    pay();
                }
            }
            Some(outer) => nest.set(Some(Nest { depth: outer.depth - 1, ..outer })),
            None => {}
        });
    }
}

/// Tries to begin the next epoch, and frees what that leaves in nobody's sight: this lane's
/// values, and those that other lanes left lying for some epochs. For the committer to call now
/// and then; true if the epoch advanced.
///
/// Destructors of retired values run here, where values are retired and where pins end, though
/// not while the thread holds a state guard or a lock behind it. So they may take a state guard,
/// but nothing that comes before it.
pub fn advance() -> bool {
    let advanced = DOMAIN.try_advance();
    if holds_leaf() {
        return advanced;
    }
    let epoch = DOMAIN.epoch.load(Ordering::Acquire);
    let mine = Lane::current();
    for lane in Lane::given() {
        // A lane frees its own values, into its own part of the allocator; what an idle lane
        // leaves is anybody's after a while.
        let patience = if lane == mine { 0 } else { 2 };
        DOMAIN.limbo.of(lane).collect(freeable(epoch).saturating_sub(patience));
    }
    advanced
}

/// How many retired values wait to be freed, over all lanes.
pub fn limbo() -> usize {
    Lane::given().map(|lane| DOMAIN.limbo.of(lane).len()).sum()
}

/// The last epoch whose retired values nobody can see in epoch `now`.
fn freeable(now: u64) -> u64 {
    if plant::left_out(Step::SecondEpoch) { now - 1 } else { now - 2 }
}

/// Frees `value` once nobody can see it. It must be unlinked already: who pins from now on does
/// not find it.
pub(crate) fn retire(value: Retired) {
    plant::fence(Step::RetireFence, Ordering::SeqCst);
    let domain: &Domain = &DOMAIN;
    let limbo = domain.limbo.mine();
    if limbo.push(value, || domain.epoch.load(Ordering::Relaxed)) {
        OWED.with(|owed| owed.set(true));
        pay();
    }
}

/// Frees what can be freed of the lane's limbo, if destructors may run here.
#[cold]
fn pay() {
    if holds_leaf() {
        return;
    }
    OWED.with(|owed| owed.set(false));
    let domain: &Domain = &DOMAIN;
    let collect = || domain.limbo.mine().collect(freeable(domain.epoch.load(Ordering::Acquire)));
    // All read the epoch. If others have moved it far enough, it is not moved once more: so it
    // changes as often as the busiest lane needs, however many there are.
    if collect() < CROWDED / 2 {
        domain.try_advance();
        collect();
    }
}

impl Domain {
    fn try_advance(&self) -> bool {
        // Acquire: with the epoch come the ends of all pins that its beginning waited for.
        let epoch = self.epoch.load(Ordering::Acquire);
        plant::fence(Step::AdvanceFence, Ordering::SeqCst);
        let before = parity(epoch - 1);
        let pinned = |lane| self.pins.of(lane)[before].load(Ordering::Acquire) != 0;
        if Lane::given().any(pinned) {
            return false;
        }
        let (acq_rel, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.epoch.compare_exchange(epoch, epoch + 1, acq_rel, relaxed).is_ok()
    }
}
