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
use super::groups::{Groups, Shared};
use crate::volume::reader::BlockReader;
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::{NumberSet, Padded};

/// Groups that one reader of a bitmap looks at to make room.
const LOOKS: usize = 16;
/// However small the cache: an operation holds some groups, and claims in others.
const FEWEST: usize = 16;
/// The bit of [`Presence`] that says that the bitmaps are in memory.
const READY: u32 = 1 << 31;

/// Whether a group's bitmaps are in memory, and how many operations need that to stay so.
#[derive(Debug, Default)]
pub(super) struct Presence(AtomicU32);

impl Presence {
    /// Counts an operation; false if the bitmaps are not in memory.
    fn hold(&self) -> bool {
        // Acquire: with the bit come the bitmaps.
        let ready = self.0.fetch_add(1, Ordering::Acquire) & READY != 0;
        if !ready {
            self.let_go();
        }
        ready
    }

    /// Holds a group whose bitmaps are in memory, as its guard, which is held, says.
    pub(super) fn hold_resident(&self) -> GroupHold<'_> {
        let ready = self.hold();
        assert!(ready, "under the guard, presence and bitmaps agree");
        GroupHold { presence: self }
    }

    fn let_go(&self) {
        let before = self.0.fetch_sub(1, Ordering::Release);
        debug_assert!(before & !READY > 0, "let go once for each hold");
    }

    /// The bitmaps are in memory. The guard is held.
    fn arrive(&self) {
        self.0.fetch_or(READY, Ordering::Release);
    }

    /// Takes the bit away, unless an operation needs them. The guard is held.
    fn leave(&self) -> bool {
        self.0.compare_exchange(READY, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The bitmaps of a group stay in memory while this lives.
#[derive(Debug)]
#[must_use = "the bitmaps may go when it is dropped"]
pub(crate) struct GroupHold<'g> {
    presence: &'g Presence,
}

impl Drop for GroupHold<'_> {
    fn drop(&mut self) {
        self.presence.let_go();
    }
}

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

    fn count(&self) -> usize {
        self.books.0.count.load(Ordering::Relaxed)
    }

    fn next(&self) -> Option<u32> {
        let hand = &self.books.0.hand;
        let group = self.set.next(hand.load(Ordering::Relaxed)).or_else(|| self.set.next(0))?;
        hand.store(group + 1, Ordering::Relaxed);
        Some(group)
    }
}

impl Groups {
    /// Holds a group whose bitmaps are in memory.
    pub(super) fn hold_ready(&self, group: u32) -> Option<GroupHold<'_>> {
        let presence = &self.shared.cells.get(group as usize)?.presence;
        presence.hold().then(|| GroupHold { presence })
    }

    /// The bitmaps of a group were read. Its guard is held.
    pub(super) fn note_arrival(&self, group: u32) {
        self.shared.cells[group as usize].presence.arrive();
        self.residents.set.insert(group);
        self.residents.books.0.count.fetch_add(1, Ordering::Relaxed);
    }

    /// After bitmaps were read: makes room for them. No guard is held.
    pub(super) fn make_room(&self, read: &dyn BlockReader) {
        if self.residents.count() <= self.residents.most {
            return;
        }
        self.evict(LOOKS);
        // What is left is dirty, claimed or in use: the first becomes clean by a commit.
        if self.residents.count() > self.residents.most + self.residents.most / 4 {
            read.crowded();
        }
    }

    /// Committer: `tid` is durable, and what was freed in it is released.
    pub(crate) fn committed(&self, tid: Tid) {
        self.residents.durable.fetch_max(tid.0, Ordering::Relaxed);
        self.evict(2 * self.residents.count());
    }

    /// Looks at so many groups at most, until they are no more than may be.
    fn evict(&self, looks: usize) {
        for _ in 0..looks {
            if self.residents.count() <= self.residents.most {
                return;
            }
            let Some(group) = self.residents.next() else { return };
            self.evict_group(group);
        }
    }

    fn evict_group(&self, group: u32) {
        let cell = &self.shared.cells[group as usize];
        let Some(mut state) = cell.state.try_lock() else { return };
        let durable = Tid(self.residents.durable.load(Ordering::Relaxed));
        if !state.may_go(durable) || !cell.presence.leave() {
            return;
        }
        let gone = std::mem::replace(&mut state.maps, Maps::Unread);
        self.residents.set.remove(group);
        self.residents.books.0.count.fetch_sub(1, Ordering::Relaxed);
        drop(state);
        drop(gone);
    }

    /// Bytes of bitmaps in memory.
    pub(crate) fn bitmap_bytes(&self) -> u64 {
        self.residents.count() as u64 * self.shared.bitmap_bytes()
    }
}

impl Shared {
    /// Bytes of the bitmaps of one group: two of each kind, those of the running transaction, and what
    /// the allocator adds.
    pub(super) fn bitmap_bytes(&self) -> u64 {
        bitmap_bytes(&self.format.geometry)
    }
}

/// As [`Shared::bitmap_bytes`].
pub(super) fn bitmap_bytes(geometry: &lanefs_ondisk::superblock::Geometry) -> u64 {
    let bits =
        3 * u64::from(geometry.blocks_per_group()) + 2 * u64::from(geometry.inodes_per_group());
    bits / 8 + 640
}
