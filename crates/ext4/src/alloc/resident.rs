//! Decides which groups keep their bitmaps in memory.
//!
//! Bitmaps are read when a group is first needed. If the bitmaps in memory exceed the cap, each
//! read evicts the bitmaps of some other groups. After a commit more bitmaps are clean, so the
//! committer continues the eviction.
//!
//! *Groups that stay.* A group keeps its bitmaps while it is held, and while a transaction waits
//! for the group's image or has not made that image durable. It also keeps them while a block or an
//! inode of the group is claimed, or is freed but not durably free. Such claims and freed items are
//! recorded only in the bitmaps' `taken` bits, which exist only in memory. A group that was used
//! since the last pass gets a second chance.
//!
//! *Locking*: eviction skips a group whose guard is held, and takes no lock that the committer
//! holds. The number of the last durable transaction shows whether a captured image can be read
//! back already.

use super::group::Maps;
use super::shared::Shared;
use crate::volume::reader::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::{NumberSet, Padded};

/// Number of groups that a thread examines to make room after it has read bitmaps.
const LOOKS: usize = 16;
/// The smallest cap, in groups. One operation needs several groups, because it holds some and
/// claims in others.
const FEWEST: usize = 16;

/// The groups with bitmaps in memory.
#[derive(Debug)]
pub(super) struct Residents {
    set: NumberSet,
    /// On cache lines of their own; written only when bitmaps are read or evicted.
    counts: Padded<Counts>,
    most: usize,
    durable: AtomicU64,
}

#[derive(Debug)]
struct Counts {
    count: AtomicUsize,
    /// The group at which the next pass starts.
    hand: AtomicU32,
}

impl Residents {
    /// Creates the set for `groups` groups, without bitmaps in memory. `bytes` is the cap, and the
    /// bitmaps of one group take `each` bytes.
    pub(super) fn new(groups: u32, bytes: u64, each: u64) -> Residents {
        let most = usize::try_from(bytes / each.max(1)).unwrap_or(usize::MAX).max(FEWEST);
        let counts = Counts { count: AtomicUsize::new(0), hand: AtomicU32::new(0) };
        Residents {
            set: NumberSet::new(groups),
            counts: Padded(counts),
            most,
            durable: AtomicU64::new(0),
        }
    }

    /// Makes room for `groups` groups. Two threads must not call this function at once.
    pub(super) fn grow(&self, groups: u32) {
        self.set.grow(groups);
    }

    /// Returns the number of groups whose bitmaps are in memory.
    pub(super) fn count(&self) -> usize {
        self.counts.0.count.load(Ordering::Relaxed)
    }

    fn next(&self) -> Option<u32> {
        let hand = &self.counts.0.hand;
        let group = self.set.next(hand.load(Ordering::Relaxed)).or_else(|| self.set.next(0))?;
        hand.store(group + 1, Ordering::Relaxed);
        Some(group)
    }

    /// Notes that the bitmaps of a group were read. The caller holds the group's guard.
    pub(super) fn note_arrival(&self, shared: &Shared, group: u32) {
        shared.cells[group as usize].presence.arrive();
        self.set.insert(group);
        self.counts.0.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes room after bitmaps were read. The caller holds no guard.
    pub(super) fn make_room(&self, shared: &Shared, read: &dyn BlockReader) {
        if self.count() <= self.most {
            return;
        }
        self.evict(shared, LOOKS);
        // The remaining bitmaps are dirty, claimed or in use. If they are too many, a commit is
        // requested, because it makes the dirty ones clean.
        if self.count() > self.most + self.most / 4 {
            read.over_limit();
        }
    }

    /// Committer: notes that `tid` is durable and that the blocks freed in it are released.
    pub(super) fn committed(&self, shared: &Shared, tid: Tid) {
        self.durable.fetch_max(tid.0, Ordering::Relaxed);
        self.evict(shared, 2 * self.count());
    }

    /// Examines groups, and evicts those that can be evicted, until the cap is met or `looks`
    /// groups were examined.
    fn evict(&self, shared: &Shared, looks: usize) {
        for _ in 0..looks {
            if self.count() <= self.most {
                return;
            }
            let Some(group) = self.next() else { return };
            self.evict_group(shared, group);
        }
    }

    fn evict_group(&self, shared: &Shared, group: u32) {
        let cell = &shared.cells[group as usize];
        let Some(mut state) = cell.state.try_lock() else { return };
        let durable = Tid(self.durable.load(Ordering::Relaxed));
        if !state.may_go(durable) || !cell.presence.leave() {
            return;
        }
        let gone = std::mem::replace(&mut state.maps, Maps::Unread);
        self.set.remove(group);
        self.counts.0.count.fetch_sub(1, Ordering::Relaxed);
        drop(state);
        drop(gone);
    }
}
