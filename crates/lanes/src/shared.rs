//! The operation lock: readers share it, usually without writing to a common cache line; writers
//! hold it exclusively.
//!
//! A lock that several lanes take shared becomes *biased*. A reader of a biased lock only writes
//! the lock's address into its lane's row. A writer takes the inner lock, clears the bias and waits
//! until no row has the address (BRAVO, Dice and Kogan, ATC 2019):
//!
//! ```text
//! read:    if bias && CAS(slot, 0 -> lock) { FENCE; if bias { fast } else { release(slot) } }
//!          inner.read(); if two lanes were seen && not inhibited { bias = 1 }
//! release: if slot.swap(0) & WAIT { wake the writers that wait for lock }
//! write:   inner.write(); if bias { bias = 0; FENCE; inhibit
//!            for each slot { if CAS(slot, lock -> lock | WAIT) { wait until it is not } } }
//! ```
//!
//! *Invariants*: only holders of the inner lock set the bias. A *fast hold* (an address in a row)
//! exists only while the bias is set, or while the writer that cleared the bias still waits. A
//! release of a fast hold uses the lock's address only as a number. It does not access the lock,
//! which may be freed as soon as the slot is empty.
//!
//! A writer does not starve: after it cleared the bias, new readers wait for the inner lock, which
//! lets no reader pass a waiting writer.

use crate::contention::taken;
use crate::held::{Held, LockKey};
use crate::lane::{Lane, Padded, PerLane};
use crate::rank::Rank;
use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering, fence};
use crate::world;

/// The number of slots in a lane's row, a power of two. Two locks may have the same slot. If a
/// reader of one lock finds the slot in use by the other lock, the reader merely misses the fast
/// path.
const ROW: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// After a revocation, this many shared holds must be taken through the inner lock before the bias
/// may be set again. A revocation reads one line per lane, and this number of holds makes up for
/// its cost.
const INHIBIT: u16 = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// The bit that is set in a slot if a writer waits until the slot is released. Locks are aligned,
/// so this bit of a lock's address is always clear.
const WAIT: usize = 1;

/// Special values of [`SharedLock::seen`]: no lane yet, and several lanes. Any other value is the
/// lane plus one.
const NO_LANE: u16 = 0;
const TWO_LANES: u16 = u16::MAX;

world::global! {
    static ROWS: PerLane<[AtomicUsize; ROW]> =
        PerLane::new(|_| std::array::from_fn(|_| AtomicUsize::new(0)))
}

world::global! { static WAITERS: [Padded<Waiters>; ROW] = std::array::from_fn(|_| Padded::default()) }

/// Writers that wait for slots to become empty. Their lock is taken while other locks are held, but
/// no lock is taken under it.
#[derive(Default)]
struct Waiters {
    lock: WaitersLock,
    emptied: world::Condvar,
}

struct WaitersLock(world::Mutex<()>);

impl Default for WaitersLock {
    fn default() -> Self {
        WaitersLock(world::Mutex::new(()))
    }
}

/// A lock without data, held shared or exclusively.
#[derive(Debug)]
pub struct SharedLock {
    inner: world::RwLock<()>,
    order: u64,
    rank: Rank,
    bias: AtomicBool,
    /// The lane whose threads took shared holds through the inner lock, or a mark for several
    /// lanes.
    seen: AtomicU16,
    /// How many more shared holds must be taken before the bias may be set again. Updates may be
    /// lost, which affects only speed.
    inhibit: AtomicU16,
}

/// Held shared until dropped.
#[must_use = "dropping it lets the lock go"]
pub struct SharedHold<'a> {
    // This field is dropped before the record of the held lock.
    _way: Way<'a>,
    _held: Held,
}

/// Held exclusively until dropped.
#[must_use = "dropping it lets the lock go"]
pub struct ExclusiveHold<'a> {
    _inner: world::RwWriteGuard<'a, ()>,
    _held: Held,
}

/// The way in which a shared hold was obtained.
enum Way<'a> {
    Fast(#[expect(dead_code, reason = "held for its drop")] Visible),
    Inner(#[expect(dead_code, reason = "held for its drop")] world::RwReadGuard<'a, ()>),
}

/// A fast hold. Until it is dropped, writers see the reader in a slot. It borrows nothing from the
/// lock.
struct Visible {
    slot: &'static AtomicUsize,
    address: usize,
}

impl Drop for Visible {
    fn drop(&mut self) {
        if self.slot.swap(0, Ordering::AcqRel) & WAIT != 0 {
            let waiters = &WAITERS[place_in_row(self.address)];
            let _lock = waiters.lock.0.lock();
            waiters.emptied.notify_all();
        }
    }
}

/// Returns the slot in a row for a lock's address. Addresses are hashed, because the low bits of
/// allocated addresses hardly differ.
fn place_in_row(address: usize) -> usize {
    ((address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (ROW - 1)
}

impl SharedLock {
    /// Creates a free lock. `order` orders the locks of one rank: they are taken in ascending
    /// order.
    pub fn new(rank: Rank, order: u64) -> SharedLock {
        SharedLock {
            inner: world::RwLock::new(()),
            order,
            rank,
            bias: AtomicBool::new(false),
            seen: AtomicU16::new(NO_LANE),
            inhibit: AtomicU16::new(0),
        }
    }

    /// Waits for a shared hold. A thread that already holds this lock must not call this.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock that must be taken after this lock. Among locks
    /// of the same rank, the lock with the lower order comes first.
    #[track_caller]
    #[inline]
    pub fn shared(&self) -> SharedHold<'_> {
        let held = Held::in_order(self.key());
        let way = match self.enter() {
            Some(visible) => Way::Fast(visible),
            None => Way::Inner(self.shared_inner()),
        };
        SharedHold { _way: way, _held: held }
    }

    /// Waits for the exclusive hold.
    ///
    /// # Panics
    /// The same as for [`SharedLock::shared`].
    #[track_caller]
    pub fn exclusive(&self) -> ExclusiveHold<'_> {
        let held = Held::in_order(self.key());
        let inner = taken(self.rank, || self.inner.try_write(), || self.inner.write());
        if self.bias.load(Ordering::Relaxed) {
            self.revoke();
        }
        ExclusiveHold { _inner: inner, _held: held }
    }

    /// Takes the exclusive hold if the lock is free. The lock order does not apply.
    pub fn try_exclusive(&self) -> Option<ExclusiveHold<'_>> {
        let inner = self.inner.try_write()?;
        if self.bias.load(Ordering::Relaxed) && !self.try_revoke() {
            return None;
        }
        Some(ExclusiveHold { _inner: inner, _held: Held::tried(self.key()) })
    }

    fn key(&self) -> LockKey {
        LockKey { rank: self.rank, order: Some(self.order) }
    }

    /// Returns the address that stands for the lock in the slots; it cannot change while a hold
    /// borrows the lock.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Writes the address into the lane's row, if the lock is biased and the slot is free.
    #[inline]
    fn enter(&self) -> Option<Visible> {
        if !self.bias.load(Ordering::Relaxed) {
            return None;
        }
        let address = self.address();
        let slot = &ROWS.mine()[place_in_row(address)];
        slot.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let visible = Visible { slot, address };
        world::fence_after_update();
        // Acquire: the thread that set the bias held the inner lock after the last writer, so this
        // thread sees that writer's work.
        self.bias.load(Ordering::Acquire).then_some(visible)
    }

    #[track_caller]
    fn shared_inner(&self) -> world::RwReadGuard<'_, ()> {
        let inner = taken(self.rank, || self.inner.try_read(), || self.inner.read());
        self.consider_bias();
        inner
    }

    /// Sets the bias if two lanes have taken shared holds and no revocation was recent. The caller
    /// has a hold on the inner lock.
    fn consider_bias(&self) {
        let left = self.inhibit.load(Ordering::Relaxed);
        if left > 0 {
            self.inhibit.store(left - 1, Ordering::Relaxed);
            return;
        }
        let mine = Lane::current().index() as u16 + 1;
        match self.seen.load(Ordering::Relaxed) {
            NO_LANE => self.seen.store(mine, Ordering::Relaxed),
            seen if seen == mine => {}
            _ => {
                self.seen.store(TWO_LANES, Ordering::Relaxed);
                self.bias.store(true, Ordering::Release);
            }
        }
    }

    /// Clears the bias and waits until no fast hold is left. The caller holds the inner lock.
    #[cold]
    fn revoke(&self) {
        self.unbias();
        for lane in Lane::given() {
            self.wait_out(lane);
        }
    }

    fn unbias(&self) {
        self.inhibit.store(INHIBIT, Ordering::Relaxed);
        self.bias.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn slot(&self, lane: Lane) -> &'static AtomicUsize {
        &ROWS.of(lane)[place_in_row(self.address())]
    }

    fn wait_out(&self, lane: Lane) {
        let (slot, address) = (self.slot(lane), self.address());
        // Loads the slot first, since even a failing exchange would take the cache line away from
        // its lane. Acquire: a writer that sees the slot empty also sees that the reader's work is
        // done.
        if slot.load(Ordering::Acquire) != address {
            return;
        }
        let (acq_rel, acquire) = (Ordering::AcqRel, Ordering::Acquire);
        if slot.compare_exchange(address, address | WAIT, acq_rel, acquire).is_err() {
            return;
        }
        let wait = || {
            let waiters = &WAITERS[place_in_row(address)];
            let mut lock = waiters.lock.0.lock();
            while slot.load(Ordering::Acquire) == address | WAIT {
                waiters.emptied.wait(&mut lock);
            }
        };
        taken(self.rank, || None, wait)
    }

    /// Clears the bias if there is no fast hold. The caller holds the inner lock.
    fn try_revoke(&self) -> bool {
        if self.has_visible_reader() {
            return false;
        }
        self.unbias();
        if !self.has_visible_reader() {
            return true;
        }
        // A fast hold still exists, so the bias is set again, and the next writer searches for the
        // hold.
        self.bias.store(true, Ordering::Release);
        false
    }

    fn has_visible_reader(&self) -> bool {
        Lane::given().any(|lane| self.slot(lane).load(Ordering::Acquire) == self.address())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::unscheduled::Barrier;
    use std::cell::Cell;

    fn biased() -> SharedLock {
        let lock = SharedLock::new(Rank::Operation, 1);
        lock.bias.store(true, Ordering::Relaxed);
        lock
    }

    #[test]
    fn the_bias_waits_for_a_second_lane() {
        let lock = SharedLock::new(Rank::Operation, 1);
        for _ in 0..10 {
            drop(lock.shared());
        }
        assert!(!lock.bias.load(Ordering::Relaxed));
        // The barrier makes both threads run at once, so that they have different lanes.
        let both = Barrier::new(2);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    drop(lock.shared());
                    both.wait();
                });
            }
        });
        assert!(lock.bias.load(Ordering::Relaxed));
    }

    #[test]
    fn a_fast_hold_keeps_writers_out_and_its_release_lets_them_in() {
        let lock = biased();
        let hold = lock.shared();
        assert!(matches!(hold._way, Way::Fast(_)));
        std::thread::scope(|s| {
            assert!(s.spawn(|| lock.try_exclusive().is_none()).join().expect("no panic"));
            assert!(lock.bias.load(Ordering::Relaxed));
            let writer = s.spawn(|| drop(lock.exclusive()));
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(!writer.is_finished());
            drop(hold);
        });
        assert!(!lock.bias.load(Ordering::Relaxed));
        assert!(lock.try_exclusive().is_some());
    }

    #[test]
    fn the_bias_returns_after_enough_operations() {
        let lock = biased();
        drop(lock.exclusive());
        lock.seen.store(TWO_LANES, Ordering::Relaxed);
        for _ in 0..INHIBIT {
            drop(lock.shared());
            assert!(!lock.bias.load(Ordering::Relaxed));
        }
        drop(lock.shared());
        assert!(lock.bias.load(Ordering::Relaxed));
    }

    #[test]
    fn an_exclusive_hold_excludes_all_others() {
        let lock = biased();
        let _hold = lock.exclusive();
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(lock.try_exclusive().is_none());
            });
        });
    }

    #[test]
    fn operation_locks_may_be_taken_together_in_ascending_order() {
        let (one, two) = (SharedLock::new(Rank::Operation, 1), SharedLock::new(Rank::Operation, 2));
        let _one = one.exclusive();
        let _two = two.shared();
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "lock order: taking Operation 1 while holding Operation 2")]
    fn operation_locks_in_descending_order_panic() {
        let (one, two) = (SharedLock::new(Rank::Operation, 1), SharedLock::new(Rank::Operation, 2));
        let _two = two.exclusive();
        let _one = one.exclusive();
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "lock order: taking Operation 1 while holding Operation 1")]
    fn a_recursive_shared_hold_panics() {
        let lock = biased();
        let _first = lock.shared();
        let _second = lock.shared();
    }

    #[test]
    fn many_readers_do_not_starve_a_writer() {
        struct Guarded(Cell<u64>);
        // SAFETY: the test only touches the cell under the lock that it tests.
        unsafe impl Sync for Guarded {}
        let (lock, value) = (biased(), Guarded(Cell::new(0)));
        let (lock, value) = (&lock, &value);
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _hold = lock.shared();
                        assert_eq!(value.0.get() % 2, 0);
                    }
                });
            }
            for _ in 0..300 {
                let _hold = lock.exclusive();
                value.0.set(value.0.get() + 1);
                value.0.set(value.0.get() + 1);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(value.0.get(), 600);
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod model;
