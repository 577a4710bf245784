//! Implements the cache of one kind of object. Objects are found by number, loaded once, held, and
//! evicted.
//!
//! A look-up writes no shared memory except a use mark. If it finds no object, the thread loads the
//! object under the loader lock that the object's number selects. So no two threads load the same
//! object at the same time. Otherwise a slow thread could insert a stale copy after the object of a
//! faster thread was changed and evicted.
//!
//! # Eviction
//!
//! Eviction gives objects a second chance: a look-up marks an object as used. A hand moves over the
//! buckets of the map, clears marks, and evicts objects that it finds unmarked. Each lane has a
//! hand of its own, so lanes evict concurrently without waiting for each other. Each object decides
//! under its own guard whether it can be evicted ([`Cached::evict`]), so eviction shares no lock
//! with the committer.

use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use lanefs_lanes::{Holds, Map, Mutex, PerLane, Pin, Rank};
use lanefs_plan::Error;
use std::ops::Deref;

/// The number of loader locks of a cache. There are many more locks than threads, so that two
/// numbers that are loaded at the same time rarely share a lock.
const LOADERS: usize = if cfg!(any(loom, shuttle)) { 16 } else { 1024 };

/// The number of buckets that a hand moves over under one pin.
const STRETCH: usize = if cfg!(any(loom, shuttle)) { 4 } else { 64 };

/// Is implemented by objects that a cache finds by number.
pub(crate) trait Cached: Send + Sync + 'static {
    /// Returns the number of the inode, or of the block that holds the object.
    fn number(&self) -> u64;

    /// Returns the object's use mark.
    fn used(&self) -> &Used;

    /// Makes the object dead if nothing needs it in memory. It is needed if it has a hold, if it
    /// has a change that waits for a commit, or if a transaction after `settled` changed it: the
    /// work that follows that transaction's commit may still be unfinished.
    ///
    /// # Locking
    /// Waits for no lock: if another thread has the object's guard, the object counts as needed.
    fn evict(self: &Arc<Self>, settled: Tid) -> Evicted;
}

/// The result of an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evicted {
    /// Nothing was evicted: the object is needed.
    Nothing,
    /// The object's contents were dropped, but the object stays.
    Contents,
    /// The object is dead and must be removed from its cache.
    Object,
}

/// Marks that an object was used since a hand last passed it, which gives the object a second
/// chance.
#[derive(Debug)]
pub(crate) struct Used(AtomicBool);

impl Used {
    pub(crate) fn new() -> Used {
        Used(AtomicBool::new(false))
    }

    /// Marks the object as used.
    #[inline]
    pub(crate) fn note(&self) {
        // The mark is read first, so that threads that look up the same object do not write its
        // cache line each time.
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// Holds the objects of one kind in memory.
pub(crate) struct Cache<T> {
    objects: Map<u64, Arc<T>>,
    loaders: Box<[Mutex<()>]>,
    /// The bucket that each lane's hand has reached.
    hands: PerLane<AtomicUsize>,
}

impl<T: Cached> Cache<T> {
    /// Creates an empty cache with room for `room` objects before its map grows. `rank` is the rank
    /// of its loader locks.
    pub(crate) fn new(room: usize, rank: Rank) -> Cache<T> {
        Cache {
            objects: Map::with_capacity(room),
            loaders: (0..LOADERS).map(|_| Mutex::new(rank, ())).collect(),
            // The hands start far apart, so that no hand follows closely behind another.
            hands: PerLane::new(|lane| AtomicUsize::new(lane.index().wrapping_mul(0x9e37_79b9))),
        }
    }

    /// Returns the object with this number, dead or alive. The reference is valid as long as the
    /// pin lives.
    #[inline]
    pub(crate) fn find<'p>(&'p self, pin: &'p Pin, number: u64) -> Option<&'p Arc<T>> {
        self.objects.find(pin, &number)
    }

    /// Runs `hold` on the object with this number, marks the object as used and returns the hold.
    /// `None` if there is no such object, or if `hold` returns `None` because the object is dead.
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

    /// Returns the hold that `look` finds. If the object is missing, one thread runs `load`, which
    /// loads and inserts it. May sleep.
    #[inline]
    pub(crate) fn hold_or_load<H>(
        &self,
        number: u64,
        look: impl Fn() -> Result<Option<H>, Error>,
        load: impl FnOnce() -> Result<H, Error>,
    ) -> Result<H, Error> {
        match look()? {
            Some(held) => Ok(held),
            None => self.load_alone(number, look, load),
        }
    }

    /// Looks again, and loads the object if it is still missing. Only one thread at a time does
    /// this for a number.
    #[cold]
    fn load_alone<H>(
        &self,
        number: u64,
        look: impl Fn() -> Result<Option<H>, Error>,
        load: impl FnOnce() -> Result<H, Error>,
    ) -> Result<H, Error> {
        let _loader = self.loader(number).lock();
        match look()? {
            Some(held) => Ok(held),
            None => load(),
        }
    }

    /// Returns the lock under which the object with this number is loaded. Objects in different
    /// groups often have numbers that differ by a multiple of a power of two. Multiplication
    /// spreads such numbers over the locks.
    pub(crate) fn loader(&self, number: u64) -> &Mutex<()> {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.loaders[spread as usize % LOADERS]
    }

    /// Makes the number of `object` refer to `object`. If the number referred to another object
    /// before, runs `look` on that object.
    pub(crate) fn insert(&self, object: Arc<T>, look: impl FnOnce(&T)) {
        self.objects.replace(object.number(), object, |before| look(before));
    }

    /// Removes the entry of `object`'s number, unless the number already refers to another object.
    pub(crate) fn remove(&self, object: &Arc<T>) {
        self.objects.remove_if(&object.number(), |found| Arc::ptr_eq(found, object));
    }

    /// Removes and returns the object with this number.
    pub(crate) fn take(&self, number: u64) -> Option<Arc<T>> {
        self.objects.remove_if(&number, |_| true)
    }

    /// Runs `visit` on all objects; may miss objects that are added or removed meanwhile.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<T>)) {
        self.objects.for_each(|_, object| visit(object));
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Moves this lane's hand until `wanted` objects are evicted or have dropped their contents.
    /// The hand passes at most `buckets` buckets and makes at most two rounds. It may need the
    /// second round, if all objects have marks that the first round clears. Returns how many
    /// objects were evicted or have dropped their contents. `settled` is the last transaction whose
    /// work after the commit is done.
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
        // Threads of one lane share a hand, so a thread may move the hand back. Then some buckets
        // are visited again, which does no harm.
        hand.store(at, Ordering::Relaxed);
        evicted
    }
}

// Holds on the blocks of a cache, counted in each block's hold word.

/// A block whose holds are all counted in its word.
pub(crate) trait Counted {
    /// Returns the block's hold word.
    fn holds(&self) -> &Holds;
}

/// A hold on a block's object. While the hold lives, memory contains no second object for the same
/// block.
pub(crate) struct Held<T: Counted>(Arc<T>);

impl<T: Counted> Held<T> {
    /// Takes a hold on `block`; returns `None` if the block is dead.
    #[inline]
    pub(crate) fn take(block: &Arc<T>) -> Option<Held<T>> {
        block.holds().add(1).then(|| Held(block.clone()))
    }

    /// Takes over the hold with which a new block's word was created.
    pub(crate) fn first(block: Arc<T>) -> Held<T> {
        Held(block)
    }
}

impl<T: Counted> Deref for Held<T> {
    type Target = Arc<T>;
    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Counted> Clone for Held<T> {
    #[inline]
    fn clone(&self) -> Held<T> {
        let held = self.0.holds().add(1);
        debug_assert!(held, "a held block is not dead");
        Held(self.0.clone())
    }
}

impl<T: Counted> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        let ended = self.0.holds().subtract(1);
        debug_assert!(!ended, "blocks have no names to lose");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
