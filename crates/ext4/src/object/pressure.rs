//! Keeps the caches within their cap.
//!
//! | part of the cap | for |
//! |---|---|
//! | 1/4 | inodes: the objects, their records, their mappings, and their nodes in the inode map |
//! | 3/16 | inode-table blocks |
//! | 3/16 | metadata blocks with reader copies and name indices; bitmaps, at most 1/16 of the cap |
//! | 1/4 | images that wait to be written in place, at most 64 MiB (`journal`) |
//! | 1/8 | names (`vfs`) |
//!
//! The memory cost of each object is known, including the allocator's overhead; a test compares it
//! with the heap. Threads that load objects also evict: after every 64 loads (`LOOK`) a lane
//! compares the caches with their parts of the cap, and evicts the excess ([`crate::cache`]). Dirty
//! objects cannot be evicted. So if too few objects were evicted, a commit is requested, which
//! makes dirty objects clean. After an eviction the heap is trimmed, which gives memory back only
//! if the program has chosen [`LineHeap`] as its allocator.

use crate::object::inode::Inode;
use crate::object::map_slot::SMALL;
use lanefs_lanes::PerLane;
use lanefs_lanes::sync::atomic::AtomicU64;

/// The number of loads of one lane between two checks of the caches.
pub(super) const LOOK: u64 = if cfg!(shuttle) { 2 } else { 64 };

/// The largest number of objects that one check evicts. Between two checks, a lane loads fewer
/// objects than this, so eviction keeps up.
pub(super) const MOST: u64 = 4 * LOOK;

/// The largest number of buckets that one check visits.
pub(super) const BUCKETS: usize = if cfg!(shuttle) { 8 } else { 1024 };

/// The size of an inode in bytes: the object, its node in the map, its record, a few mappings,
/// and the allocator's overhead. The memory of larger mappings is counted separately, in units of
/// this size (`Objects::inodes_and_mappings`).
pub(super) const INODE: u64 = size_of::<Inode>() as u64 + 64 + 256 + SMALL;

/// The size in bytes of a metadata block, or a block of an inode table, without its contents.
const BLOCK: u64 = 448;

/// The block size divided by the size of the index of a block's names. With usual names the index
/// takes a quarter of the block size.
const NAMES: u64 = 4;

/// The largest number of objects for which a new map has room. With this room, two objects rarely
/// share a bucket if the file system has few files.
const ROOM: u64 = if cfg!(shuttle) { 0 } else { 1 << 15 };

/// Returns how many names fit into the names' part of a cap of `bytes`. A name costs an entry of
/// one cache line, and its share of a bucket.
pub fn names_within(bytes: u64) -> usize {
    usize::try_from(bytes / 8 / 112).unwrap_or(usize::MAX)
}

/// Returns the largest total size in bytes of the images that wait to be written in place.
pub(crate) fn images_within(bytes: u64) -> u64 {
    (bytes / 4).clamp(1 << 20, 64 << 20)
}

/// Returns the part of the cap, in bytes, that groups' bitmaps may take. It is included in the part
/// for metadata blocks.
pub(crate) fn bitmaps_within(bytes: u64) -> u64 {
    bytes / 16
}

/// Holds the limits of the caches, and counts the loads between two checks of the caches.
pub(crate) struct Pressure {
    pub(super) inodes: Share,
    pub(super) meta: Share,
    pub(super) tables: Share,
    /// The number of objects that each lane loaded.
    pub(super) loads: PerLane<AtomicU64>,
    /// The time, in eighths of a second, at which a commit last reclaimed memory. Only the
    /// committer uses it.
    pub(super) eighth: AtomicU64,
}

/// The part of the cap for one kind of object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// The number of objects that fit.
    most: u64,
    /// The size of each object in bytes.
    pub(super) bytes: u64,
}

impl Share {
    fn new(part: u64, bytes: u64) -> Share {
        Share { most: part / bytes, bytes }
    }

    /// Returns the number of objects to evict if `there` objects are in memory. An eighth of the
    /// limit is kept free for objects that other lanes load meanwhile.
    pub(super) fn excess(self, there: usize) -> u64 {
        (there as u64).saturating_sub(self.most - self.most / 8)
    }

    pub(super) fn is_over(self, there: usize) -> bool {
        there as u64 > self.most
    }

    /// Returns the number of objects for which a new map gets room.
    fn room(self) -> usize {
        self.most.min(ROOM) as usize
    }
}

impl Pressure {
    /// Creates the limits for caches of `cap` bytes and blocks of `block` bytes.
    pub(crate) fn new(cap: u64, block: u64) -> Pressure {
        let sixteenth = cap / 16;
        Pressure {
            inodes: Share::new(4 * sixteenth, INODE),
            // A block takes memory for the contents, the copy for readers and an index of the
            // names.
            meta: Share::new(3 * sixteenth, 2 * block + block / NAMES + BLOCK),
            tables: Share::new(3 * sixteenth, block + BLOCK),
            loads: PerLane::new(|_| AtomicU64::new(0)),
            eighth: AtomicU64::new(0),
        }
    }

    /// Returns the number of inodes and the number of metadata blocks for which new maps need room.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.inodes.room(), self.meta.room())
    }
}
