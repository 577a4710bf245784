//! The cache of names. Each bucket is on its own cache line, and look-ups do not write that line.
//!
//! The table has a fixed number of buckets with a few ways each, and each bucket evicts its own
//! entries. So memory is bounded, without a list that all threads write. A look-up takes a pin and
//! reads one bucket's ways. It writes shared memory only to mark an entry that was not used since
//! the bucket's last eviction. An entry shows whether it was published again after a look-up, so
//! the user of the look-up can tell whether the result is old.
//!
//! Publishing a known name again changes its entry in place; a new name costs one allocation.
//!
//! *Locking*: `change` serialises the writers of one bucket, and is held for only one publication.

use super::entry::{Entry, known_from};
use super::hashed::HashedName;
use super::known::Known;
use lanefs_ext4::{DirId, Named, Names};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Mutex, NameKey, Pin, Rank, Seen, Slot, pin};

/// The number of entries of a bucket. Lock, tags and addresses of a bucket share one cache line, so
/// a thread that adds a name fetches at most this line from another processor.
const WAYS: usize = 4;

/// A word in which each of the four tags has the value one.
const ONES: u64 = 0x0001_0001_0001_0001;

/// The result of a look-up, with a version that changes when ext4 publishes the name again
/// ([`Names`]).
#[derive(Clone, Copy)]
pub(crate) struct Sighting<'p> {
    /// What the cache knows about the name.
    pub(crate) known: Known,
    /// The result in the form in which the cache stores it, with the version.
    seen: Seen,
    /// The entry, if the cache has the name.
    entry: Option<&'p Entry>,
}

/// A bucket of one cache line.
#[repr(align(64))]
struct Bucket {
    /// Guards changes of the bucket. The value is the way at which the next search for room starts.
    change: Mutex<u8>,
    /// Each tag is a part of an entry's hash, so that most entries with other names need not be
    /// read. The tags have 16 bits each and are compared together. A tag and its way do not change
    /// at the same time. A reader that reads between the two changes misses the new name, like a
    /// reader that reads before both. Written under `change`.
    tags: AtomicU64,
    ways: [Slot<Entry>; WAYS],
}
#[cfg(not(any(loom, shuttle)))] // the checkers' atomics are larger
const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    fn new() -> Bucket {
        Bucket {
            change: Mutex::new(Rank::Bucket, 0),
            tags: AtomicU64::new(0),
            ways: Default::default(),
        }
    }

    #[inline]
    fn find<'p>(&'p self, pin: &'p Pin, hash: u64, dir: DirId, name: &[u8]) -> Option<&'p Entry> {
        let other = self.tags.load(Ordering::Relaxed) ^ (tag_of(hash) * ONES);
        // A matching tag is zero in `other`, and its highest bit is set in `same`. In `same`, the
        // highest bits of some tags above it may also be set although these tags do not match, so
        // the entry itself is compared too.
        let mut same = other.wrapping_sub(ONES) & !other & (ONES << 15);
        while same != 0 {
            let entry = self.ways[same.trailing_zeros() as usize / 16].get(pin);
            if let Some(entry) = entry.filter(|entry| entry.is(hash, dir, name)) {
                return Some(entry);
            }
            same &= same - 1;
        }
        None
    }

    /// Sets the tag of a way. The caller holds `change`.
    fn set_tag(&self, way: usize, hash: u64) {
        let shift = way * 16;
        let others = self.tags.load(Ordering::Relaxed) & !(0xffff << shift);
        self.tags.store(others | tag_of(hash) << shift, Ordering::Relaxed);
    }

    /// Returns a way for a new entry: a free way, or the way of an entry that was not used since
    /// the last search. The search starts at `next`.
    fn room(&self, pin: &Pin, next: &mut u8) -> usize {
        if let Some(free) = self.ways.iter().position(|way| way.get(pin).is_none()) {
            return free;
        }
        // One pass over all ways clears the marks of their entries. The step after that pass
        // chooses the way at which the pass began, even if the entry of this way was used again
        // meanwhile.
        let mut at = 0;
        for _ in 0..=WAYS {
            at = usize::from(*next) % WAYS;
            *next = next.wrapping_add(1);
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

/// Returns the bits of a hash that do not choose the bucket.
#[inline]
fn tag_of(hash: u64) -> u64 {
    hash >> 48
}

/// A name cache in which names of different buckets share no memory.
pub(crate) struct NameCache {
    buckets: Box<[Bucket]>,
    key: NameKey,
}

impl NameCache {
    /// Creates a cache with room for about `entries` names. The number of buckets is rounded up to
    /// a power of two, and is at most 2^24.
    pub(crate) fn new(entries: usize) -> NameCache {
        let count = entries.div_ceil(WAYS).clamp(1, 1 << 24).next_power_of_two();
        let buckets = (0..count).map(|_| Bucket::new()).collect();
        NameCache { buckets, key: NameKey::of_process() }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &Bucket {
        // The count is a power of two, so the mask keeps the index within it.
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    /// Returns the inode that `name` in `dir` refers to, if the name is in the cache.
    // This function is inlined into the walks. They do not use the file type in `known`, so the
    // compiler drops the code that decodes it.
    #[inline(always)]
    pub(crate) fn sight<'p>(
        &'p self,
        pin: &'p Pin,
        dir: DirId,
        name: HashedName<'_>,
    ) -> Sighting<'p> {
        let hash = dir.join(name.hash, self.key);
        let Some(entry) = self.bucket(hash).find(pin, hash, dir, name.bytes) else {
            let seen = Seen { word: 0, version: 0 };
            return Sighting { known: Known::Unknown, seen, entry: None };
        };
        let seen = entry.look();
        Sighting { known: known_from(seen.word), seen, entry: Some(entry) }
    }

    /// Like [`NameCache::sight`], without the version.
    pub(crate) fn find(&self, dir: DirId, name: &[u8]) -> Known {
        self.sight(&pin(), dir, name.into()).known
    }
}

impl Sighting<'_> {
    /// Returns true if the name has certainly not been published again since the look-up.
    #[inline]
    pub(crate) fn still(&self) -> bool {
        // A sighting without an entry is never valid, because the name may have been published
        // after the look-up.
        self.entry.is_some_and(|entry| entry.is_still(self.seen))
    }
}

impl Names for NameCache {
    fn publish_read(
        &self,
        dir: DirId,
        name: &[u8],
        entry: Option<Named>,
        still: &dyn Fn() -> bool,
    ) {
        let hash = dir.hash_of(name, self.key);
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
        bucket.set_tag(at, hash);
    }

    fn forget(&self, _: DirId) {
        // Nothing has to be removed. Once a directory is deleted, no look-up uses its number and
        // generation any more, and the entries of its names are evicted when room is needed.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Known;
    use lanefs_ondisk::{FileType, Ino};

    #[test]
    fn entries_in_every_way_of_a_bucket_are_found_and_evicted_ones_are_not() {
        let dir = DirId { ino: Ino(2), generation: 7 };
        for round in 0..200u32 {
            let names = NameCache::new(WAYS);
            let name = |n: u32| format!("{round}-{n}");
            let named = |n: u32| Named { ino: Ino(n + 1), file_type: FileType::Regular };
            for n in 0..=WAYS as u32 {
                let found = |at: u32| names.find(dir, name(at).as_bytes());
                assert_eq!(found(n), Known::Unknown);
                names.publish(dir, name(n).as_bytes(), Some(named(n)));
                let known = (0..=n).filter(|at| found(*at) == Known::Entry(named(*at))).count();
                assert_eq!(known, WAYS.min(n as usize + 1), "of {} names", n + 1);
            }
        }
    }
}
