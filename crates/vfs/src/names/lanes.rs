//! The scalable name cache: buckets on cache lines of their own, read without a write.
//!
//! A table of a fixed number of buckets with a few ways each, so that memory is bounded without
//! a list that everybody writes: what makes room is in the bucket that needs it. A look-up pins,
//! reads one bucket's ways, and writes nothing, except once for an entry that was not used since
//! the bucket last looked for room. That nothing was published meanwhile is told by the entry alone.
//!
//! A name that is known and published again is changed in place; a new one is one allocation.
//!
//! *Locking*: `change` orders the writers of one bucket; nothing is held across anything.

use super::entry::{Entry, known_from};
use super::{NameCache, Sighting};
use lanefs_ext4::{DirId, Named, Names};
use lanefs_lanes::sync::atomic::{AtomicU32, Ordering};
use lanefs_lanes::{Mutex, Pin, Rank, Slot, pin};

/// Entries of one bucket: their addresses fill a line.
const WAYS: usize = 8;

/// Two lines, the second one of addresses.
#[repr(align(128))]
struct Bucket {
    /// Where to look for room next.
    change: Mutex<usize>,
    /// Part of each entry's hash, so that others need not be looked at. A tag and its way are not
    /// changed together: who meets that finds nothing, as a moment before.
    tags: [AtomicU32; WAYS],
    ways: [Slot<Entry>; WAYS],
}

impl Bucket {
    fn new() -> Bucket {
        Bucket {
            change: Mutex::new(Rank::Bucket, 0),
            tags: Default::default(),
            ways: Default::default(),
        }
    }

    #[inline]
    fn find<'p>(&'p self, pin: &'p Pin, hash: u64, dir: DirId, name: &[u8]) -> Option<&'p Entry> {
        let tag = tag_of(hash);
        let mut ways = self.tags.iter().zip(&self.ways);
        ways.find_map(|(found, way)| {
            if found.load(Ordering::Relaxed) != tag {
                return None;
            }
            way.get(pin).filter(|entry| entry.is(hash, dir, name))
        })
    }

    /// A way for another entry: a free one, or that of an entry that was not used since the last
    /// time. `next` is where to begin.
    fn room(&self, pin: &Pin, next: &mut usize) -> usize {
        if let Some(free) = self.ways.iter().position(|way| way.get(pin).is_none()) {
            return free;
        }
        // Once around nothing is used any more, but for what is used again at once.
        let mut at = *next % WAYS;
        for _ in 0..=WAYS {
            at = *next % WAYS;
            *next = at + 1;
            let unused = |entry: &Entry| !entry.used.swap(false, Ordering::Relaxed);
            if self.ways[at].get(pin).is_none_or(unused) {
                break;
            }
        }
        if let Some(entry) = self.ways[at].get(pin) {
            entry.go();
        }
        at
    }
}

/// The bits that do not choose the bucket.
#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A name cache in which names that hash to different buckets share nothing.
pub struct LaneNames {
    buckets: Box<[Bucket]>,
}

impl LaneNames {
    /// A cache of at most about `entries` names.
    pub fn new(entries: usize) -> LaneNames {
        let count = entries.div_ceil(WAYS).clamp(1, 1 << 24).next_power_of_two();
        LaneNames { buckets: (0..count).map(|_| Bucket::new()).collect() }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &Bucket {
        // The count is a power of two, so the mask keeps the index within it.
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }
}

impl Names for LaneNames {
    fn publish_read(
        &self,
        dir: DirId,
        name: &[u8],
        entry: Option<Named>,
        still: &dyn Fn() -> bool,
    ) {
        let hash = dir.hash_of(name);
        let bucket = self.bucket(hash);
        let pin = pin();
        let mut next = bucket.change.lock();
        if !still() {
            return;
        }
        if let Some(known) = bucket.find(&pin, hash, dir, name) {
            return known.change(entry);
        }
        let at = bucket.room(&pin, &mut next);
        bucket.ways[at].store(Entry::new(hash, dir, name, entry));
        bucket.tags[at].store(tag_of(hash), Ordering::Relaxed);
    }

    fn forget(&self, _: DirId) {
        // Nobody asks for a generation that is gone; its entries make room when room is needed.
    }
}

impl NameCache for LaneNames {
    fn sight<'p>(&'p self, pin: &'p Pin, dir: DirId, name: &[u8]) -> Sighting<'p> {
        let hash = dir.hash_of(name);
        let Some(entry) = self.bucket(hash).find(pin, hash, dir, name) else {
            return Sighting::NONE;
        };
        let seen = entry.look();
        Sighting { known: known_from(seen.word), seen, entry: Some(entry) }
    }

    fn still(&self, _: &Pin, _: DirId, _: &[u8], seen: &Sighting<'_>) -> bool {
        // What was not seen may have come.
        seen.entry.is_some_and(|entry| entry.is_still(seen.seen))
    }
}
