//! Keeps metadata blocks that belong to one owner: directory blocks, extent nodes, attribute
//! blocks, the blocks of the orphan file.
//!
//! # Locking
//!
//! A thread that changes the contents holds the owner's operation lock exclusively, with two
//! exceptions. To change one name in a block of a directory, it holds the operation lock shared,
//! and the lock `names` of the block. To change an attribute block, which several inodes may share,
//! it holds the guard only. The guard orders Apply against the committer and against readers.
//!
//! A block is evicted only after the transactions that changed it are settled, because its image is
//! then in the image store or written in place.

use crate::cache::{Cache, Cached, Counted, Evicted, Held, Used};
use crate::object::dirty::{Captured, Dirty, Handle, Journaled};
use crate::volume::MetaKind;
use lanefs_journal::{Listed, Tid, Tracked};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Holds, Lines, Mutex, MutexGuard, Pin, Rank};
use lanefs_ondisk::Block;
use lanefs_ondisk::dirent::DirFormat;
use lanefs_plan::Error;
use lanefs_plan::dir::NameIndex;

/// A metadata block in memory.
pub(crate) struct MetaBlock {
    pub(crate) block: Block,
    pub(crate) kind: MetaKind,
    /// Counts the holds, and is marked as dead when the block is evicted.
    holds: Holds,
    used: Used,
    /// For a block of a directory: serialises changes of names in it. [rank Names]
    names: Mutex<()>,
    state: Mutex<MetaState>,
    /// The number of changes of the contents, or [`EVICTED`]. Written under `state`.
    version: AtomicU64,
    /// A copy of the data in `state`, from which readers can read without writing a shared cache
    /// line. Written under `state`, and created when the block is read.
    latest: lanefs_lanes::Cached<Latest>,
}

/// The copy of the contents for readers.
struct Latest {
    bytes: Lines,
    /// For a block of a directory: the index of its names, built by the first look-up.
    names: OnceLock<Option<NameIndex>>,
}

impl lanefs_lanes::Replaced for Latest {
    fn heap_bytes(&self) -> usize {
        let names = self.names.get().and_then(Option::as_ref);
        self.bytes.len() + names.map_or(0, NameIndex::bytes)
    }
}

impl Latest {
    fn of(bytes: &[u8]) -> Latest {
        Latest { bytes: Lines::from(bytes), names: OnceLock::new() }
    }
}

/// The contents of a block, as [`MetaCache::look`] passes them to its closures.
pub(crate) struct Contents<'a> {
    bytes: &'a [u8],
    names: Option<&'a OnceLock<Option<NameIndex>>>,
}

impl Contents<'_> {
    /// Returns the index of the block's names; `None` if no index can be built from the block, or
    /// if there is no copy of its contents for readers yet.
    pub(crate) fn names(&self, format: &DirFormat) -> Option<&NameIndex> {
        self.names?.get_or_init(|| NameIndex::of(format, &[self.bytes])).as_ref()
    }
}

impl std::ops::Deref for Contents<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// The version of an evicted object, which shows that another object of the same block may have
/// later contents.
const EVICTED: u64 = u64::MAX;

struct MetaState {
    data: Arc<[u8]>,
    tracked: Tracked<Arc<[u8]>>,
    /// Whether the block was read since its last change. If it was, the next read makes a copy for
    /// all later reads.
    looked_at: bool,
    /// The block's position on the list of the transaction in which the block is dirty.
    listed: Option<Listed>,
    /// The last transaction that changed the block. Until this transaction is settled, this object
    /// may hold the only copy of the image.
    changed: Tid,
    /// The transaction that allocated the block; `None` if the block was loaded.
    born: Option<Tid>,
    /// The transaction that freed the block; from then on no image of the block is captured.
    freed: Option<Tid>,
}

impl MetaBlock {
    /// Creates a block with one hold.
    fn new(block: Block, kind: MetaKind, data: Arc<[u8]>, born: Option<Tid>) -> Arc<MetaBlock> {
        let tracked = Tracked::new();
        let state = MetaState {
            data,
            tracked,
            looked_at: false,
            listed: None,
            changed: Tid(0),
            born,
            freed: None,
        };
        Arc::new(MetaBlock {
            block,
            kind,
            holds: Holds::new(1),
            used: Used::new(),
            names: Mutex::new(Rank::Names, ()),
            state: Mutex::new(Rank::Guard, state),
            version: AtomicU64::new(0),
            latest: lanefs_lanes::Cached::default(),
        })
    }

    /// Returns a copy of the contents. Writes no cache line that other threads read, except at the
    /// first call after a change.
    fn copy(&self, pin: &Pin) -> Arc<[u8]> {
        if let Some(latest) = self.latest.get(pin) {
            return Arc::from(&*latest.bytes);
        }
        let state = self.state.lock();
        self.latest.store(Latest::of(&state.data));
        Arc::from(&*state.data)
    }

    /// Runs `look` on the current contents. If the block is read often, this writes no cache line
    /// that other threads read.
    fn look<R>(&self, pin: &Pin, look: impl FnOnce(&Contents<'_>) -> R) -> R {
        if let Some(Latest { bytes, names }) = self.latest.get(pin) {
            return look(&Contents { bytes, names: Some(names) });
        }
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.looked_at, true) {
            self.latest.store(Latest::of(&state.data));
        }
        look(&Contents { bytes: &state.data, names: None })
    }

    /// Runs `look` on the current contents. Returns their version, and the result of `look`.
    pub(crate) fn look_under_guard<R>(&self, look: impl FnOnce(&[u8]) -> R) -> (u64, R) {
        let state = self.state.lock();
        (self.version.load(Ordering::Relaxed), look(&state.data))
    }

    /// Returns the version of the contents. Must be called before the contents are read.
    pub(crate) fn version(&self) -> u64 {
        // Acquire, because a change clears the copy for readers before it increments the version.
        self.version.load(Ordering::Acquire)
    }

    /// Locks the names in this block, so that only the caller changes names in the block. The
    /// operation lock of the directory is held shared. A thread that locks several blocks locks
    /// them in ascending order of `block`.
    pub(crate) fn lock_names(&self) -> MutexGuard<'_, ()> {
        self.names.lock_in_order(self.block.0)
    }

    /// Returns the current contents.
    pub(crate) fn data(&self) -> Arc<[u8]> {
        self.state.lock().data.clone()
    }

    /// Apply: replaces the contents.
    pub(crate) fn replace(self: &Arc<Self>, handle: &mut Handle<'_>, data: Arc<[u8]>) {
        self.change(handle, |contents| *contents = data);
    }

    /// Apply: changes the contents under the guard.
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        handle: &mut Handle<'_>,
        change: impl FnOnce(&mut Arc<[u8]>) -> R,
    ) -> R {
        handle.changes(self.block);
        let mut state = self.state.lock();
        let MetaState { data, tracked, .. } = &mut *state;
        let newly = tracked.touch(handle.tid(), || data.clone());
        // The block is listed before other threads can see the change, for the same reason as in
        // `Inode::change_state`.
        if newly {
            handle.charge(1);
            state.listed = Some(handle.dirty(Dirty::Object(self.clone())));
        }
        // The copy for readers is cleared before the change, because `change` may publish a name
        // (see `version` and `Names::publish_read`).
        self.latest.clear();
        let MetaState { data, .. } = &mut *state;
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Release);
        let result = change(data);
        state.looked_at = false;
        state.changed = handle.tid();
        result
    }

    /// Apply: notes that the block is freed. Returns whether the log may contain an image of the
    /// block, or may still receive one.
    fn bury(self: &Arc<Self>, handle: &mut Handle<'_>) -> bool {
        let tid = handle.tid();
        let mut state = self.state.lock();
        let MetaState { data, tracked, listed, born, freed, .. } = &mut *state;
        *freed = Some(tid);
        if *born == Some(tid) {
            // No capture will need the block. If it stayed listed, creating and removing a
            // directory repeatedly would fill the memory until the next commit.
            tracked.bury(tid, || data.clone());
            let listed = listed.take();
            drop(state);
            drop(listed.and_then(|listed| handle.take_off(listed)));
            return false;
        }
        if tracked.touch(tid, || data.clone()) {
            // As `touch` requires, the block is put on the list of dirty objects. The commit adds
            // no image of the block, because the block is freed. So this costs no credits.
            handle.dirty(Dirty::Object(self.clone()));
        }
        true
    }

    /// Takes the contents as of `tid`, or returns `None` if the block was freed or is not dirty in
    /// `tid`.
    fn take(&self, tid: Tid) -> Option<Arc<[u8]>> {
        let mut state = self.state.lock();
        let MetaState { data, tracked, freed, .. } = &mut *state;
        let image = tracked.take(tid, || data.clone())?;
        freed.is_none_or(|since| tid < since).then_some(image)
    }
}

impl Journaled for MetaBlock {
    fn capture(&self, tid: Tid, into: &mut Captured<'_>) {
        if let Some(data) = self.take(tid) {
            into.block(self.block, self.kind, data);
        }
    }
}

/// A hold on a metadata block.
pub(crate) type MetaRef = Held<MetaBlock>;

impl Counted for MetaBlock {
    fn holds(&self) -> &Holds {
        &self.holds
    }
}

impl Cached for MetaBlock {
    fn number(&self) -> u64 {
        self.block.0
    }

    fn used(&self) -> &Used {
        &self.used
    }

    fn evict(self: &Arc<Self>, settled: Tid) -> Evicted {
        // The block is marked dead under the guard, so that no change is in progress at that
        // moment: every change needs a hold and takes the guard. If another thread holds the guard,
        // that thread is using the block. So eviction does not wait for the guard, and the block
        // stays.
        let Some(state) = self.state.try_lock() else { return Evicted::Nothing };
        if !state.tracked.is_clean() || state.changed > settled || !self.holds.evict(0) {
            return Evicted::Nothing;
        }
        self.version.store(EVICTED, Ordering::Release);
        Evicted::Object
    }
}

/// Loads metadata blocks that are not in memory.
pub(crate) trait MetaSource {
    /// Reads and checks the contents of `block`. May sleep.
    fn load(&self, block: Block, kind: MetaKind) -> Result<Arc<[u8]>, Error>;

    /// Called after a block was loaded, because the caches may then be too large.
    fn loaded(&self);
}

/// The set of metadata blocks in memory.
pub(crate) struct MetaCache {
    pub(crate) blocks: Cache<MetaBlock>,
}

impl MetaCache {
    /// Creates an empty cache whose map grows only after about `room` blocks were added.
    pub(crate) fn new(room: usize) -> MetaCache {
        MetaCache { blocks: Cache::new(room, Rank::Load) }
    }

    /// Returns a hold on `block`, which is a block of `kind`. If the block is not in memory, it is
    /// loaded and checked, so this call may sleep. The caller must hold no guard.
    pub(crate) fn get(
        &self,
        source: &dyn MetaSource,
        block: Block,
        kind: MetaKind,
    ) -> Result<MetaRef, Error> {
        let mut was_loaded = false;
        let held = self.blocks.hold_or_load(
            block.0,
            || self.cached(block, kind),
            || {
                was_loaded = true;
                self.load(source, block, kind)
            },
        )?;
        if was_loaded {
            source.loaded();
        }
        Ok(held)
    }

    /// Returns a copy of the contents of `block`, for a reader that holds the owner's operation
    /// lock. It is a copy, because taking a hold or a counted reference would write a cache line
    /// that readers share. If the block is evicted meanwhile, the copy is still the latest, because
    /// the operation lock keeps changes out.
    pub(crate) fn read(
        &self,
        source: &dyn MetaSource,
        block: Block,
        kind: MetaKind,
    ) -> Result<Arc<[u8]>, Error> {
        let pin = lanefs_lanes::pin();
        if let Some(found) = self.blocks.find(&pin, block.0)
            && found.kind == kind
        {
            found.used.note();
            return Ok(found.copy(&pin));
        }
        drop(pin);
        Ok(self.get(source, block, kind)?.data())
    }

    /// Runs `look` on the contents of `block`, as [`MetaCache::read`] does but without a copy. Then
    /// runs `conclude` with the result and a function that returns whether the contents are still
    /// the same.
    pub(crate) fn look<R>(
        &self,
        source: &dyn MetaSource,
        block: Block,
        kind: MetaKind,
        look: impl FnOnce(&Contents<'_>) -> R,
        conclude: impl FnOnce(&R, &dyn Fn() -> bool),
    ) -> Result<R, Error> {
        let whole = |found: &MetaBlock, pin: &Pin| {
            let version = found.version();
            let result = found.look(pin, look);
            // For a moment an evicted object can still be found, while the contents of a newer
            // object of the same block may already have changed.
            conclude(&result, &|| version != EVICTED && found.version() == version);
            result
        };
        let pin = lanefs_lanes::pin();
        if let Some(found) = self.blocks.find(&pin, block.0)
            && found.kind == kind
        {
            found.used.note();
            return Ok(whole(found, &pin));
        }
        drop(pin);
        let held = self.get(source, block, kind)?;
        Ok(whole(&held, &lanefs_lanes::pin()))
    }

    fn load(
        &self,
        source: &dyn MetaSource,
        block: Block,
        kind: MetaKind,
    ) -> Result<MetaRef, Error> {
        let loaded = MetaBlock::new(block, kind, source.load(block, kind)?, None);
        self.blocks.insert(loaded.clone(), |_| ());
        Ok(MetaRef::first(loaded))
    }

    /// Returns a hold on `block`; `None` if the block is not in memory as a block of `kind`, or is
    /// dead.
    #[inline]
    pub(crate) fn held(&self, pin: &Pin, block: Block, kind: MetaKind) -> Option<MetaRef> {
        let found = self.blocks.find(pin, block.0).filter(|found| found.kind == kind)?;
        let held = MetaRef::take(found)?;
        found.used.note();
        Some(held)
    }

    /// Returns a hold on the block; `None` if the block must be loaded, because it is not in memory
    /// or its object is dead (evicted).
    fn cached(&self, block: Block, kind: MetaKind) -> Result<Option<MetaRef>, Error> {
        match self.blocks.hold(block.0, MetaRef::take) {
            // The image is cross-linked: two owners refer to the block, or one owner refers to it
            // as two kinds of block.
            Some(found) if found.kind != kind => Err(Error::CrossLinked { block }),
            found => Ok(found),
        }
    }

    /// Apply: inserts a block that the handle has just allocated.
    pub(crate) fn create(
        &self,
        handle: &mut Handle<'_>,
        block: Block,
        kind: MetaKind,
        data: Arc<[u8]>,
    ) {
        let created = MetaRef::first(MetaBlock::new(block, kind, data, Some(handle.tid())));
        created.change(handle, |_| ());
        self.blocks.insert(Arc::clone(&created), |_| ());
    }

    /// Apply: frees `block` in memory. An image that is still to be captured for an earlier
    /// transaction is kept; images in the log are revoked. The caller clears the block's bit in the
    /// bitmap.
    pub(crate) fn free(&self, handle: &mut Handle<'_>, block: Block) {
        let journaled = match self.blocks.take(block.0) {
            Some(found) => found.bury(handle),
            None => true,
        };
        if journaled {
            handle.revoke(block);
        }
    }
}
