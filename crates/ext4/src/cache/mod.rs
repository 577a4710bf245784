//! The cache of one kind of object: found by number, loaded once, held, evicted.
//!
//! A look-up writes nothing. A miss is loaded by one thread under a loader lock that the number
//! chooses, so no stale copy is inserted after a newer object was evicted.
//!
//! # Eviction
//!
//! Second chance: a look-up marks an object as used; a hand moves over the buckets of the map, clears
//! marks, and evicts objects that it finds unmarked. Each lane has a hand of its own, so lanes evict
//! side by side and none waits for another. An object decides by itself, under its own guard, whether
//! it may go ([`Cached::evict`]): eviction shares no lock with the committer.

use crate::error::Error;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use lanefs_lanes::{Map, Mutex, PerLane, Pin, Rank};

/// Loader locks of a cache.
const LOADERS: usize = 64;

/// Buckets that a hand moves over under one pin.
const STRETCH: usize = if cfg!(any(loom, shuttle)) { 4 } else { 64 };

/// An object in memory that a cache finds by its number.
pub(crate) trait Cached: Send + Sync + 'static {
    /// The number: of an inode, or of the block where it lies.
    fn number(&self) -> u64;

    /// The mark that it was used.
    fn used(&self) -> &Used;

    /// Makes it dead if nothing needs it in memory: no hold, no change that waits for a commit, and
    /// nothing that a transaction after `settled` still owes it.
    ///
    /// # Locking
    /// Takes the object's own guard; waits for no other lock.
    fn evict(self: &Arc<Self>, settled: Tid) -> Evicted;
}

/// What an eviction came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// The object is needed.
    Nothing,
    /// Its contents were dropped, the object stays.
    Contents,
    /// The object is dead, to be taken out of its cache.
    Object,
}

/// Whether an object was used since a hand came by: its second chance.
#[derive(Debug)]
pub(crate) struct Used(AtomicBool);

impl Used {
    pub(crate) fn new() -> Used {
        Used(AtomicBool::new(false))
    }

    /// The object was used.
    #[inline]
    pub(crate) fn note(&self) {
        // Read first: threads that look at one object must not write its line each time.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// The objects of one kind in memory.
pub(crate) struct Cache<T> {
    objects: Map<u64, Arc<T>>,
    loaders: Box<[Mutex<()>]>,
    /// The bucket where each lane's hand stands.
    hands: PerLane<AtomicUsize>,
}

impl<T: Cached> Cache<T> {
    /// An empty cache with room for `room` objects before its map grows. `rank` is that of its
    /// loader locks.
    pub(crate) fn new(room: usize, rank: Rank) -> Cache<T> {
        Cache {
            objects: Map::with_capacity(room),
            loaders: (0..LOADERS).map(|_| Mutex::new(rank, ())).collect(),
            // Far apart, so that lanes do not follow each other.
            hands: PerLane::new(|lane| AtomicUsize::new(lane.index().wrapping_mul(0x9e37_79b9))),
        }
    }

    /// The object with this number, dead or alive, as long as the pin lives.
    #[inline]
    pub(crate) fn find<'p>(&'p self, pin: &'p Pin, number: u64) -> Option<&'p Arc<T>> {
        self.objects.find(pin, &number)
    }

    /// What `hold` makes of the object with this number; the object is marked as used. `None` if there
    /// is none, or `hold` gives none since it is dead.
    #[inline]
    pub(crate) fn hold<H>(
        &self,
        number: u64,
        hold: impl FnOnce(&Arc<T>) -> Option<H>,
    ) -> Option<H> {
        let pin = lanefs_lanes::pin();
        let object = self.objects.find(&pin, &number)?;
        let held = hold(object)?;
        object.used().note();
        Some(held)
    }

    /// As [`Cache::hold`] with `look`; what is missing is loaded by `load`, by one thread, which
    /// inserts it. May sleep.
    pub(crate) fn hold_or_load<H>(
        &self,
        number: u64,
        look: impl Fn() -> Result<Option<H>, Error>,
        load: impl FnOnce() -> Result<H, Error>,
    ) -> Result<H, Error> {
        if let Some(held) = look()? {
            return Ok(held);
        }
        let _loader = self.loaders[number as usize % LOADERS].lock();
        match look()? {
            Some(held) => Ok(held),
            None => load(),
        }
    }

    /// `object` is what its number means from now on; runs `look` on what it meant before.
    pub(crate) fn insert(&self, object: Arc<T>, look: impl FnOnce(&T)) {
        self.objects.replace(object.number(), object, |before| look(before));
    }

    /// The number of `object` means nothing any more, unless it means another object already.
    pub(crate) fn remove(&self, object: &Arc<T>) {
        self.objects.remove_if(&object.number(), |found| Arc::ptr_eq(found, object));
    }

    /// Takes the object with this number out.
    pub(crate) fn take(&self, number: u64) -> Option<Arc<T>> {
        self.objects.remove_if(&number, |_| true)
    }

    /// Runs `visit` on all objects; what comes or goes meanwhile may be missed.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<T>)) {
        self.objects.for_each(|_, object| visit(object));
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Moves this lane's hand until `wanted` objects were evicted, over `buckets` buckets at most and two
    /// turns at most: the first may find nothing but marks to clear.
    /// `settled` is the last transaction that owes no object anything.
    pub(crate) fn evict(&self, wanted: usize, buckets: usize, settled: Tid) -> usize {
        let hand = self.hands.mine();
        let mut at = hand.load(Ordering::Relaxed);
        let (mut evicted, mut passed) = (0, 0);
        let most = buckets.min(2 * self.objects.buckets());
        while evicted < wanted && passed < most {
            let mut unused = Vec::new();
            at = self.objects.sweep(at, STRETCH, |_, object| {
                if !object.used().take() {
                    unused.push(object.clone());
                }
            });
            passed += STRETCH;
            for object in unused {
                let done = object.evict(settled);
                if done == Evicted::Object {
                    self.remove(&object);
                }
                evicted += usize::from(done != Evicted::Nothing);
            }
        }
        // Threads of one lane share a hand: one of them may set it back, which only looks again.
        hand.store(at, Ordering::Relaxed);
        evicted
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
