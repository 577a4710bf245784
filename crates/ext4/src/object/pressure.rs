//! Keeps the caches within their cap.
//!
//! | part of the cap | for |
//! |---|---|
//! | 1/4 | inodes, with their nodes in the map, records and mappings |
//! | 3/16 | inode-table blocks |
//! | 3/16 | metadata blocks of one owner, each with the copy and the index that readers read; bitmaps of groups, 1/16 at most |
//! | 1/4 | images that wait to be written home, 64 MiB at most (`journal`) |
//! | 1/8 | names (`vfs`) |
//!
//! What an object costs is known, allocations and all; a test holds that against the heap. The thread
//! that loads an object also evicts: every lane compares the caches with their parts once in some
//! loads, and evicts what is too much ([`crate::cache`]). Dirty objects cannot go: if too little could
//! be evicted, a commit is requested, which makes them clean. Then the heap is trimmed, which gives
//! nothing back unless the program has chosen [`LineHeap`].

use crate::object::inode::Inode;
use crate::object::map_slot::SMALL;
use lanefs_lanes::PerLane;
use lanefs_lanes::sync::atomic::AtomicU64;

/// Loads between two looks at the caches, by one lane.
pub(super) const LOOK: u64 = if cfg!(shuttle) { 2 } else { 64 };

/// Objects that one look evicts at most: more than come between two, so that evicting keeps up.
pub(super) const MOST: u64 = 4 * LOOK;

/// Buckets that one look passes at most.
pub(super) const BUCKETS: usize = if cfg!(shuttle) { 8 } else { 1024 };

/// Bytes of an inode: the object, its node in the map, its record, a few mappings, and as much as the
/// allocator adds. More mappings are counted as so many inodes.
pub(super) const INODE: u64 = size_of::<Inode>() as u64 + 64 + 256 + SMALL;

/// Bytes of a metadata block, or a block of an inode table, beside its contents.
const BLOCK: u64 = 448;

/// The index of a block's names takes a quarter of the block, with usual names.
const NAMES: u64 = 4;

/// Objects of a kind that its map has room for at most before it grows: two of a small tree then
/// hardly ever meet in a bucket.
const ROOM: u64 = if cfg!(shuttle) { 0 } else { 1 << 15 };

/// Names that fit into their part of a cap of `bytes`: an entry is a line, and its bucket's part.
pub fn names_within(bytes: u64) -> usize {
    usize::try_from(bytes / 8 / 112).unwrap_or(usize::MAX)
}

/// Bytes of images that may wait to be written home.
pub(crate) fn images_within(bytes: u64) -> u64 {
    (bytes / 4).clamp(1 << 20, 64 << 20)
}

/// Bytes of groups' bitmaps, of which the metadata blocks have that much less.
pub(crate) fn bitmaps_within(bytes: u64) -> u64 {
    bytes / 16
}

/// What the caches may take, and when to look at them.
pub(crate) struct Pressure {
    pub(super) inodes: Share,
    pub(super) meta: Share,
    pub(super) tables: Share,
    /// Objects that each lane loaded.
    pub(super) loads: PerLane<AtomicU64>,
    /// The eighth of a second in which a commit last reclaimed; the committer's alone.
    pub(super) eighth: AtomicU64,
}

/// A kind's part of the cap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// Objects that fit.
    most: u64,
    /// Bytes of each.
    pub(super) bytes: u64,
}

impl Share {
    fn new(part: u64, bytes: u64) -> Share {
        Share { most: part / bytes, bytes }
    }

    /// How many of `there` are too many. An eighth is kept free, since other lanes load meanwhile.
    pub(super) fn excess(self, there: usize) -> u64 {
        (there as u64).saturating_sub(self.most - self.most / 8)
    }

    pub(super) fn is_over(self, there: usize) -> bool {
        there as u64 > self.most
    }

    /// Objects that the map is made for.
    fn room(self) -> usize {
        self.most.min(ROOM) as usize
    }
}

impl Pressure {
    /// For caches of `cap` bytes and blocks of `block` bytes.
    pub(crate) fn new(cap: u64, block: u64) -> Pressure {
        let sixteenth = cap / 16;
        Pressure {
            inodes: Share::new(4 * sixteenth, INODE),
            // Its contents, the copy that readers read, an index of its names.
            meta: Share::new(3 * sixteenth, 2 * block + block / NAMES + BLOCK),
            tables: Share::new(3 * sixteenth, block + BLOCK),
            loads: PerLane::new(|_| AtomicU64::new(0)),
            eighth: AtomicU64::new(0),
        }
    }

    /// Inodes, and metadata blocks, that the maps are made for.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.inodes.room(), self.meta.room())
    }
}
