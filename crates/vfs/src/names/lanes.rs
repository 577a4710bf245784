//! The scalable name cache: buckets on cache lines of their own, read without a write.
//!
//! A table of a fixed number of buckets with a few ways each, so that memory is bounded without
//! a list that everybody writes: what makes room is in the bucket that needs it. A look-up pins,
//! reads one bucket's ways, and writes nothing, except once for an entry that was not used since
//! the bucket last looked for room.
//!
//! *Locking*: `change` orders the writers of one bucket; nothing is held across anything.

use super::{NameCache, Sighting};
use lanefs_ext4::{DirId, Named, Names};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::{Mutex, Pin, Published, Rank, pin};

/// Entries of one bucket. Few, for they are compared one by one and copied at each change.
const WAYS: usize = 8;

struct Entry {
    hash: u64,
    dir: DirId,
    name: Box<[u8]>,
    leads_to: Option<Named>,
    /// Found since the bucket last made room: it gets a second chance then. A hint, so relaxed.
    used: AtomicBool,
}

impl Entry {
    fn is(&self, hash: u64, dir: DirId, name: &[u8]) -> bool {
        self.hash == hash && self.dir == dir && *self.name == *name
    }
}

#[repr(align(128))]
struct Bucket {
    change: Mutex<()>,
    /// Newest first.
    ways: Published<Vec<Arc<Entry>>>,
}

/// A name cache in which names that hash to different buckets share nothing.
pub struct LaneNames {
    buckets: Box<[Bucket]>,
}

impl LaneNames {
    /// A cache of at most about `entries` names.
    pub fn new(entries: usize) -> LaneNames {
        let count = entries.div_ceil(WAYS).clamp(1, 1 << 24).next_power_of_two();
        let bucket =
            |_| Bucket { change: Mutex::new(Rank::Bucket, ()), ways: Published::new(Vec::new()) };
        LaneNames { buckets: (0..count).map(bucket).collect() }
    }

    fn bucket(&self, hash: u64) -> &Bucket {
        // The count is a power of two, so the mask keeps the index within it.
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }
}

impl Names for LaneNames {
    fn publish(&self, dir: DirId, name: &[u8], entry: Option<Named>) {
        self.publish_read(dir, name, entry, &|| true);
    }

    fn publish_read(
        &self,
        dir: DirId,
        name: &[u8],
        entry: Option<Named>,
        still: &dyn Fn() -> bool,
    ) {
        let hash = dir.hash_of(name);
        let bucket = self.bucket(hash);
        let new = Arc::new(Entry {
            hash,
            dir,
            name: name.into(),
            leads_to: entry,
            used: AtomicBool::new(false),
        });
        let pin = pin();
        let _changing = bucket.change.lock();
        if !still() {
            return;
        }
        bucket.ways.store(with(bucket.ways.get(&pin), new));
    }

    fn forget(&self, _: DirId) {
        // Nobody asks for a generation that is gone; its entries make room when room is needed.
    }
}

/// `new` before `old`, without what was known of the name; if there are too many, without the oldest
/// that was not used.
fn with(old: &[Arc<Entry>], new: Arc<Entry>) -> Vec<Arc<Entry>> {
    let known = old.iter().position(|e| e.is(new.hash, new.dir, &new.name));
    let gone = known.or_else(|| (old.len() >= WAYS).then(|| victim(old)));
    let mut ways = Vec::with_capacity(old.len() + usize::from(gone.is_none()));
    ways.push(new);
    ways.extend(old.iter().enumerate().filter(|(n, _)| Some(*n) != gone).map(|(_, e)| e.clone()));
    ways
}

fn victim(full: &[Arc<Entry>]) -> usize {
    let unused = full.iter().rposition(|e| !e.used.load(Ordering::Relaxed));
    unused.unwrap_or_else(|| {
        for entry in full {
            entry.used.store(false, Ordering::Relaxed);
        }
        full.len() - 1
    })
}

impl NameCache for LaneNames {
    fn sight(&self, pin: &Pin, dir: DirId, name: &[u8]) -> Sighting {
        let hash = dir.hash_of(name);
        let ways = self.bucket(hash).ways.get(pin);
        let Some(entry) = ways.iter().find(|e| e.is(hash, dir, name)) else {
            return Sighting::NONE;
        };
        // Read first: many threads that find one name must not write its line each time.
        if !entry.used.load(Ordering::Relaxed) {
            entry.used.store(true, Ordering::Relaxed);
        }
        // While pinned, what was published is not freed, so that its address is its own.
        let mark = Arc::as_ptr(entry).addr() as u64;
        Sighting { known: entry.leads_to.into(), mark, hash, version: version_of(ways) }
    }

    fn still(&self, pin: &Pin, dir: DirId, name: &[u8], seen: &Sighting) -> bool {
        // As a rule nothing was published in the whole bucket.
        version_of(self.bucket(seen.hash).ways.get(pin)) == seen.version
            || self.sight(pin, dir, name) == *seen
    }
}

/// What tells a bucket's contents from all others that are there as long as the pin is.
fn version_of(ways: &Vec<Arc<Entry>>) -> usize {
    std::ptr::from_ref(ways).addr()
}
