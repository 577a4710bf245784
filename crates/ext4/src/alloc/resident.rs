//! Which groups have their bitmaps in memory, and which lose them again.
//!
//! Bitmaps are read when a group is first looked at. Over the cap, each group that is read has some
//! others give theirs up; a commit makes more of them clean, and goes on with it.
//!
//! *What stays.* A group keeps its bitmaps while it is held, while a transaction waits for its image or
//! has not made it durable, and while a block or an inode of it is claimed or freed and not durable: no
//! bit of `taken` may be forgotten. What was used since the last look gets a second chance.
//!
//! *Locking*: the group's guard, tried, and nothing that the committer holds. That a captured image is
//! where it is found is told by the last durable transaction.

use super::group::Maps;
use super::shared::Shared;
use crate::volume::reader::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::{NumberSet, Padded};

/// Groups that one reader of a bitmap looks at to make room.
const LOOKS: usize = 16;
/// However small the cache: an operation holds some groups, and claims in others.
const FEWEST: usize = 16;

/// The groups with bitmaps in memory.
#[derive(Debug)]
pub(super) struct Residents {
    set: NumberSet,
    /// On lines of their own: written only when bitmaps are read or go.
    books: Padded<Books>,
    most: usize,
    durable: AtomicU64,
}

#[derive(Debug)]
struct Books {
    count: AtomicUsize,
    /// Where the next look begins.
    hand: AtomicU32,
}

impl Residents {
    /// Of so many groups, none in memory; `bytes` may be, where one takes `each`.
    pub(super) fn new(groups: u32, bytes: u64, each: u64) -> Residents {
        let most = usize::try_from(bytes / each.max(1)).unwrap_or(usize::MAX).max(FEWEST);
        let books = Books { count: AtomicUsize::new(0), hand: AtomicU32::new(0) };
        Residents {
            set: NumberSet::new(groups),
            books: Padded(books),
            most,
            durable: AtomicU64::new(0),
        }
    }

    /// How many groups have their bitmaps in memory.
    pub(super) fn count(&self) -> usize {
        self.books.0.count.load(Ordering::Relaxed)
    }

    fn next(&self) -> Option<u32> {
        let hand = &self.books.0.hand;
        let group = self.set.next(hand.load(Ordering::Relaxed)).or_else(|| self.set.next(0))?;
        hand.store(group + 1, Ordering::Relaxed);
        Some(group)
    }

    /// The bitmaps of a group were read. Its guard is held.
    pub(super) fn note_arrival(&self, shared: &Shared, group: u32) {
        shared.cells[group as usize].presence.arrive();
        self.set.insert(group);
        self.books.0.count.fetch_add(1, Ordering::Relaxed);
    }

    /// After bitmaps were read: makes room for them. No guard is held.
    pub(super) fn make_room(&self, shared: &Shared, read: &dyn BlockReader) {
        if self.count() <= self.most {
            return;
        }
        self.evict(shared, LOOKS);
        // What is left is dirty, claimed or in use: the first becomes clean by a commit.
        if self.count() > self.most + self.most / 4 {
            read.crowded();
        }
    }

    /// Committer: `tid` is durable, and what was freed in it is released.
    pub(super) fn committed(&self, shared: &Shared, tid: Tid) {
        self.durable.fetch_max(tid.0, Ordering::Relaxed);
        self.evict(shared, 2 * self.count());
    }

    /// Looks at so many groups at most, until they are no more than may be.
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
        self.books.0.count.fetch_sub(1, Ordering::Relaxed);
        drop(state);
        drop(gone);
    }
}
