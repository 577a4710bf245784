//! Holds: references that keep values in memory. Many lanes can hold a value without sharing a
//! cache line.
//!
//! A value that can be held has a hold word: a count, the last lane that held it, and four bits.
//! While only one lane holds the value, the word has the whole count. A value without holds can
//! *move* to another lane once, from the lane that created the value to the lane that uses it. If
//! another lane takes a hold after the move, or while the value has holds, it sets *spread*. From
//! then on each lane counts its holds in a share, which it finds in its table by the value's
//! address.
//!
//! A value is *nameless* when it has no name: for an inode, no directory entry. A value is *dead*
//! when no thread can take a hold on it any more, because the value is being deleted or is evicted
//! from its cache.
//!
//! ```text
//! word = dead | nameless | spread | moved | lane | count
//! take:    dead: fail.  spread: lock my table; still spread: my share += 1.
//!          another lane's: if moved or count != 0 { set spread, again } else set moved
//!          count += 1, lane = mine
//! release: of a share: share -= 1; closed: count -= 1.  of the word: count -= 1
//!          (count 0 and nameless and not spread: dead; the thread that did that deletes the value)
//! fold:    spread off, count += MANY (and nameless, in the same step)
//!          for each lane: lock its table; take the share out, close it, count += what it held
//!          count -= MANY
//! ```
//!
//! *Invariants*:
//!
//! - A share is in a table only while the word has the bit *spread*, or while a fold that has
//!   cleared this bit has not yet removed the share.
//! - A nameless value never becomes spread again.
//! - During a fold the count is not zero, so no thread deletes the value because of an incomplete
//!   count.
//!
//! *Locking*: tables have [`Rank::Bucket`]; a thread holds one at a time and takes no other lock
//! under it.

use crate::hash::KeyedHasher;
use crate::lane::{Lane, PerLane};
use crate::lock::Mutex;
use crate::rank::Rank;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Deref;

const DEAD: u64 = 1 << 63;
const NAMELESS: u64 = 1 << 62;
const SPREAD: u64 = 1 << 61;
const MOVED: u64 = 1 << 60;
/// The position of sixteen bits, which contain one more than the number of the last lane that held
/// the value.
const LANE: u32 = 44;
const LANE_BITS: u64 = 0xffff << LANE;
const COUNT: u64 = (1 << LANE) - 1;
/// A value can be evicted if, of these bits of its word, only the count of holds that outlive the
/// value is left.
const IDLE: u64 = COUNT | NAMELESS | SPREAD | DEAD;
/// While a fold runs, the count contains this extra number. It is larger than any possible number
/// of holds.
const MANY: u64 = 1 << 40;

/// This bit marks a share that was removed from its table. The share's count moves to the word.
const CLOSED: u64 = 1 << 63;

/// When a lane's table has this number of shares, the shares without holds are dropped.
const TABLE: usize = if cfg!(any(loom, shuttle)) { 2 } else { 1024 };

/// A hold word. The value's initial holds belong to the lane that creates the word.
#[derive(Debug)]
pub struct Holds(AtomicU64);

/// A value that many lanes can hold.
pub trait Holdable: Send + Sync + Sized + 'static {
    /// Returns the value's hold word.
    fn holds(&self) -> &Holds;
    /// Returns the tables in which lanes count their shares; `None` if the word counts all holds.
    fn shares(&self) -> Option<&Shares<Self>>;
}

/// The lanes' tables of shares.
pub struct Shares<T> {
    lanes: PerLane<Mutex<Table<T>>>,
}

type Table<T> = HashMap<usize, Arc<Share<T>>, BuildHasherDefault<KeyedHasher>>;

/// A lane's holds on one value, on lines of their own.
#[repr(align(128))]
struct Share<T> {
    holds: AtomicU64,
    value: Arc<T>,
}

/// A counted hold. The hold must be released by [`Hold::release`], not by a drop, because the
/// caller that releases the last hold of a nameless value has to delete the value.
pub struct Hold<T> {
    way: Way<T>,
}

enum Way<T> {
    Word(Arc<T>),
    Share(Arc<Share<T>>),
}

/// Whether a value has lost its last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nameless {
    /// The value has no name. The thread that releases its last hold has to delete it.
    Yes,
    /// The value has a name, possibly a new one.
    No,
}

/// Why the word refuses a hold.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    Dead,
    Spread,
}

#[inline]
fn lane_bits() -> u64 {
    (Lane::current().index() as u64 + 1) << LANE
}

impl Holds {
    /// Creates a word with `count` holds of the calling lane.
    pub fn new(count: u64) -> Holds {
        Holds(AtomicU64::new(lane_bits() | count))
    }

    /// Adds `n` holds that are counted in the word, even if the value is spread; returns `false` if
    /// the value is dead, or the count would become too large.
    #[inline]
    pub fn add(&self, n: u64) -> bool {
        self.update(|w| {
            (w & DEAD == 0 && n < MANY && (w & COUNT) < COUNT - 2 * MANY).then(|| w + n)
        })
        .is_ok()
    }

    /// Removes `n` holds that are counted in the word; returns `true` if these were the last holds
    /// of a nameless value, which the caller then has to delete.
    #[inline]
    #[must_use]
    pub fn subtract(&self, n: u64) -> bool {
        let mut ended = false;
        let _ = self.update(|w| {
            // The subtraction saturates, because the count must not wrap if a kernel forgets more
            // references than it has.
            let count = (w & COUNT).saturating_sub(n);
            ended = count == 0 && w & (NAMELESS | DEAD | SPREAD) == NAMELESS;
            Some((w & !COUNT) | count | if ended { DEAD } else { 0 })
        });
        ended
    }

    /// Returns whether the value has lost its last name, or was created without one.
    pub fn is_nameless(&self) -> bool {
        self.0.load(Ordering::Acquire) & NAMELESS != 0
    }

    /// Returns whether the value has lost its last name and is still held.
    pub fn is_held_nameless(&self) -> bool {
        self.0.load(Ordering::Acquire) & (NAMELESS | DEAD) == NAMELESS
    }

    /// Marks a value without a name as dead, even if it is held. Returns `false` if the value is
    /// dead already, or has a name. Releasing a hold of a dead value has no effect.
    pub fn end_nameless(&self) -> bool {
        self.update(|w| (w & (NAMELESS | DEAD) == NAMELESS).then_some(w | DEAD)).is_ok()
    }

    /// Marks a value as dead; returns `false`, and changes nothing, if the value has other than
    /// `outliving` holds, which the caller keeps, or is spread, nameless or already dead.
    pub fn evict(&self, outliving: u64) -> bool {
        self.update(|w| (w & IDLE == outliving).then_some(w | DEAD)).is_ok()
    }

    /// Returns whether the value is dead.
    pub fn is_dead(&self) -> bool {
        self.0.load(Ordering::Acquire) & DEAD != 0
    }

    fn update(&self, f: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, f)
    }

    /// Adds one hold to the word; returns an error if the value is dead. With `may_spread`, also
    /// returns an error if the hold belongs in a share, because the value is spread or because this
    /// call has just made it spread.
    #[inline]
    fn take(&self, may_spread: bool) -> Result<(), Refused> {
        let mine = lane_bits();
        let mut refused = Refused::Dead;
        let taken = self.update(|w| {
            let lane = w & LANE_BITS;
            if w & DEAD != 0 {
                refused = Refused::Dead;
                return None;
            }
            if may_spread && w & SPREAD != 0 {
                refused = Refused::Spread;
                return None;
            }
            let mut moved = 0;
            if may_spread && w & NAMELESS == 0 && lane != mine && lane != 0 {
                if w & (MOVED | COUNT) != 0 {
                    refused = Refused::Spread;
                    return Some(w | SPREAD);
                }
                moved = MOVED;
            }
            refused = Refused::Dead;
            Some(((w & !LANE_BITS) | mine | moved) + 1)
        });
        match (taken, refused) {
            (_, Refused::Spread) => Err(Refused::Spread),
            (Ok(_), Refused::Dead) => Ok(()),
            (Err(_), Refused::Dead) => Err(Refused::Dead),
        }
    }

    fn is_spread(&self) -> bool {
        self.0.load(Ordering::Acquire) & SPREAD != 0
    }
}

/// Records whether `value` has lost its last name. The caller holds the value.
pub fn set_nameless<T: Holdable>(value: &Arc<T>, nameless: Nameless) {
    let holds = value.holds();
    match nameless {
        Nameless::No => {
            holds.0.fetch_and(!NAMELESS, Ordering::AcqRel);
        }
        Nameless::Yes => {
            let ended = fold(value, NAMELESS);
            debug_assert!(!ended, "the caller holds it");
        }
    }
}

/// If the value has a name and the caller is its only holder, marks the value as nameless and dead.
/// No thread can then hold the value again, and the caller has to delete it. Returns `false` if the
/// value has other holds.
///
/// # Locking
/// The same as for [`evict`].
pub fn end_as_only_holder<T: Holdable>(value: &Arc<T>) -> bool {
    let holds = value.holds();
    if holds.is_spread() {
        let ended = fold(value, 0);
        debug_assert!(!ended, "it has a name");
    }
    holds.update(|w| (w & !(LANE_BITS | MOVED) == 1).then_some(w | DEAD | NAMELESS)).is_ok()
}

/// Marks a value as dead, for eviction. Returns `false` if it has no name, or other than
/// `outliving` holds ([`Holds::evict`]).
///
/// # Locking
/// The value's last name must not be removed meanwhile.
pub fn evict<T: Holdable>(value: &Arc<T>, outliving: u64) -> bool {
    let holds = value.holds();
    if holds.is_spread() {
        let ended = fold(value, 0);
        debug_assert!(!ended, "it has a name");
    }
    holds.evict(outliving)
}

/// Makes a spread value unspread: moves the counts of all shares into the word. Sets `bits` in the
/// same step that clears the bit *spread*. Returns `true` if the value is nameless and has no holds
/// any more.
fn fold<T: Holdable>(value: &Arc<T>, bits: u64) -> bool {
    let holds = value.holds();
    let before = holds.update(|w| {
        Some((w & !(SPREAD | LANE_BITS) | bits) + if w & SPREAD != 0 { MANY } else { 0 })
    });
    let (Ok(before), Some(shares)) = (before, value.shares()) else { return false };
    if before & SPREAD == 0 {
        return false;
    }
    // Pairs with the fence in `Shares::take`. If a lane is about to add a share after the fold has
    // searched that lane's table, the lane finds that the value is not spread any more.
    fence(Ordering::SeqCst);
    for lane in Lane::given() {
        let share = shares.lanes.of(lane).lock().remove(&address(value));
        if let Some(share) = share {
            let held = share.holds.swap(CLOSED, Ordering::AcqRel);
            assert!(holds.add_any(held), "nobody ends a value during its fold");
        }
    }
    holds.subtract(MANY)
}

impl Holds {
    /// Works like [`Holds::add`], but may fill the part of the count that `add` leaves free for
    /// folds.
    fn add_any(&self, n: u64) -> bool {
        self.update(|w| (w & DEAD == 0).then(|| w + n)).is_ok()
    }
}

fn address<T>(value: &Arc<T>) -> usize {
    std::ptr::from_ref::<T>(value).addr()
}

impl<T: Holdable> Default for Shares<T> {
    fn default() -> Self {
        Shares::new()
    }
}

impl<T: Holdable> Shares<T> {
    /// Creates empty tables.
    pub fn new() -> Shares<T> {
        Shares { lanes: PerLane::new(|_| Mutex::new(Rank::Bucket, Table::default())) }
    }

    /// Drops all shares, because each share keeps its value in memory. When this function is
    /// called, no hold may be counted in a share.
    pub fn clear(&self) {
        for lane in Lane::all() {
            drop(std::mem::take(&mut *self.lanes.of(lane).lock()));
        }
    }

    /// Adds one hold to the calling lane's share of a spread value. Returns `None` if the value is
    /// not spread any more.
    fn take(&self, value: &Arc<T>) -> Option<Arc<Share<T>>> {
        let mut unused = Vec::new();
        let mut table = self.lanes.mine().lock();
        crate::world::fence_after_update();
        if !value.holds().is_spread() {
            return None;
        }
        if let Some(share) = table.get(&address(value)) {
            // No share in the table can be closed while this thread holds the table's lock.
            share.holds.fetch_add(1, Ordering::Relaxed);
            return Some(share.clone());
        }
        if table.len() >= TABLE {
            let idle = |share: &Arc<Share<T>>| share.holds.load(Ordering::Acquire) == 0;
            unused.extend(table.extract_if(|_, share| idle(share)).map(|(_, share)| share));
        }
        let share = Arc::new(Share { holds: AtomicU64::new(1), value: value.clone() });
        table.insert(address(value), share.clone());
        // Dropping an unused share may drop its value, which must not happen under the lock.
        drop(table);
        drop(unused);
        Some(share)
    }
}

impl<T: Holdable> Hold<T> {
    /// Takes a hold on `value`; returns `None` if the value is dead.
    pub fn take(value: &Arc<T>) -> Option<Hold<T>> {
        let shares = value.shares();
        loop {
            match value.holds().take(shares.is_some()) {
                Ok(()) => return Some(Hold { way: Way::Word(value.clone()) }),
                Err(Refused::Dead) => return None,
                Err(Refused::Spread) => {}
            }
            if let Some(share) = shares.and_then(|shares| shares.take(value)) {
                return Some(Hold { way: Way::Share(share) });
            }
        }
    }

    /// Creates a [`Hold`] from a hold that was counted in the word already.
    pub fn adopt(value: Arc<T>) -> Hold<T> {
        Hold { way: Way::Word(value) }
    }

    /// Releases the hold; returns `true` if it was the last hold of a nameless value, which the
    /// caller then has to delete. Called only once.
    #[must_use]
    pub fn release(&self) -> bool {
        match &self.way {
            Way::Word(value) => value.holds().subtract(1),
            Way::Share(share) => {
                let open = share.holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                    (held & CLOSED == 0).then(|| held.saturating_sub(1))
                });
                open.is_err() && share.value.holds().subtract(1)
            }
        }
    }
}

impl<T> Deref for Hold<T> {
    type Target = Arc<T>;
    #[inline]
    fn deref(&self) -> &Arc<T> {
        match &self.way {
            Way::Word(value) => value,
            Way::Share(share) => &share.value,
        }
    }
}

#[cfg(test)]
mod tests;
