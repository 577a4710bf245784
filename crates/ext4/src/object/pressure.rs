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

use crate::Access;
use crate::data::map_slot::SMALL;
use crate::fs::Fs;
use crate::object::inode::Inode;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{LineHeap, PerLane};

/// Loads between two looks at the caches, by one lane.
const LOOK: u64 = if cfg!(shuttle) { 2 } else { 64 };

/// Objects that one look evicts at most: more than come between two, so that evicting keeps up.
const MOST: u64 = 4 * LOOK;

/// Buckets that one look passes at most.
const BUCKETS: usize = if cfg!(shuttle) { 8 } else { 1024 };

/// Bytes of an inode: the object, its node in the map, its record, a few mappings, and as much as the
/// allocator adds. More mappings are counted as so many inodes.
const INODE: u64 = size_of::<Inode>() as u64 + 64 + 256 + SMALL;

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
    inodes: Share,
    meta: Share,
    tables: Share,
    /// Objects that each lane loaded.
    loads: PerLane<AtomicU64>,
    /// The eighth of a second in which a commit last reclaimed; the committer's alone.
    eighth: AtomicU64,
}

/// A kind's part of the cap.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// Objects that fit.
    most: u64,
    /// Bytes of each.
    bytes: u64,
}

impl Share {
    fn new(part: u64, bytes: u64) -> Share {
        Share { most: part / bytes, bytes }
    }

    /// How many of `there` are too many. An eighth is kept free, since other lanes load meanwhile.
    fn excess(self, there: usize) -> u64 {
        (there as u64).saturating_sub(self.most - self.most / 8)
    }

    fn is_over(self, there: usize) -> bool {
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

impl Fs {
    /// An inode or a metadata block was loaded; no lock after [`lanefs_lanes::Rank::InodeLoad`] is held.
    pub(crate) fn note_load(&self) {
        // Two threads of one lane may count one load where there were two: it only says how often to
        // look, and an update would be a locked instruction for each.
        let counter = self.pressure.loads.mine();
        let loads = counter.load(Ordering::Relaxed);
        counter.store(loads.wrapping_add(1), Ordering::Relaxed);
        if loads.is_multiple_of(LOOK) {
            self.look_at_caches();
        }
    }

    /// Makes room if there is too little. A function of its own, by which the tool that traces shared
    /// lines tells what happens once in many loads.
    #[cold]
    #[inline(never)]
    fn look_at_caches(&self) {
        if !self.evict_some(BUCKETS) {
            return;
        }
        lanefs_lanes::advance();
        LineHeap::trim_some();
        let over = self.pressure.inodes.is_over(self.inodes_and_mappings())
            || self.pressure.meta.is_over(self.metadata_there())
            || self.pressure.tables.is_over(self.tables.loaded());
        if over && self.access == Access::ReadWrite {
            self.journal.request_commit();
        }
    }

    /// Evicts some of each kind of which there is too much, looking at up to `buckets` buckets. False
    /// if there is too much of none.
    fn evict_some(&self, buckets: usize) -> bool {
        let settled = self.journal.settled();
        let Pressure { inodes, meta, tables, .. } = &self.pressure;
        let wanted = |excess: u64| excess.min(MOST) as usize;
        let too_many = [
            wanted(inodes.excess(self.inodes_and_mappings())),
            wanted(meta.excess(self.metadata_there())),
            wanted(tables.excess(self.tables.loaded())),
        ];
        // Inodes first: they hold their table blocks.
        if too_many[0] > 0 {
            self.inodes.evict(too_many[0], buckets, settled);
        }
        if too_many[1] > 0 {
            self.meta.blocks.evict(too_many[1], buckets, settled);
        }
        // Evicted inodes leave table blocks behind, which take room without their contents too.
        let left = tables.excess(self.tables.blocks.len() / 2);
        let too_many_tables = too_many[2].max(wanted(left));
        if too_many_tables > 0 {
            self.tables.blocks.evict(too_many_tables, buckets, settled);
        }
        too_many.iter().any(|many| *many > 0)
    }

    /// Inodes in memory, and what large mappings take, in inodes.
    fn inodes_and_mappings(&self) -> usize {
        let mapped = u64::try_from(self.home.mapped.sum()).unwrap_or(0);
        self.inodes.len() + (mapped / INODE) as usize
    }

    /// Metadata blocks in memory, and what groups' bitmaps take, in such blocks.
    fn metadata_there(&self) -> usize {
        let bitmaps = self.groups.bitmap_bytes().div_ceil(self.pressure.meta.bytes);
        self.meta.blocks.len() + bitmaps as usize
    }

    /// An inode was made; as [`Fs::note_load`].
    pub fn note_made(&self) {
        self.note_load();
    }

    /// Committer: what was dirty is clean now, and may be too much. Eight times a second at most, for an
    /// fsync must not wait for that each time.
    pub(crate) fn reclaim_after_commit(&self) {
        let now = lanefs_lanes::coarse_now();
        let eighth = now.secs.cast_unsigned().wrapping_mul(8) + u64::from(now.nanos / 125_000_000);
        if self.pressure.eighth.swap(eighth, Ordering::Relaxed) != eighth {
            self.evict_some(BUCKETS);
            LineHeap::trim_some();
        }
    }

    /// Bytes of what the caches hold, images and all but names.
    pub(crate) fn cached_bytes(&self) -> u64 {
        let Pressure { inodes, meta, tables, .. } = &self.pressure;
        self.inodes_and_mappings() as u64 * inodes.bytes
            + self.metadata_there() as u64 * meta.bytes
            + self.tables.loaded() as u64 * tables.bytes
            + self.journal.image_bytes()
    }
}
