//! Metadata blocks that one owner has: directory blocks, extent nodes, attribute blocks, the blocks
//! of the orphan file.
//!
//! # Locking
//!
//! The contents change under the owner's operation lock held exclusively (attribute blocks, which
//! several inodes may share: under the guard alone; one name in a block of a directory: under the
//! operation lock held shared and the block's `names`). The guard orders Apply against the committer
//! and against readers.
//! A miss is loaded by one thread under one of the loader locks, found by the block number: so no
//! stale copy can be inserted after a newer one was evicted. Nothing is evicted while the committer
//! captures ([`crate::object::pressure`]): a block is clean only once its image is in the image store.

use crate::Error;
use crate::fs::Fs;
use crate::object::commit::{Dirty, Handle};
use crate::object::inodes::ROOM;
use crate::object::roll::Roll;
use crate::plan::dir::NameIndex;
use crate::plant::{Step, left_out};
use crate::volume::reader::BlockReader;
use lanefs_journal::{Listed, Tid, Tracked};
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Cached, Holds, Lines, Map, Mutex, MutexGuard, Pin, Rank};
use lanefs_ondisk::dirent::DirFormat;
use lanefs_ondisk::{Block, FileBlock, Ino};

/// What a metadata block is, and whose: what its checksum needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaKind {
    /// Block `block` of directory `ino`.
    Directory { ino: Ino, generation: u32, block: FileBlock },
    /// A node of the extent tree of `ino`.
    Extents { ino: Ino, generation: u32 },
    /// Extended attributes; inodes may share it, so it has no owner.
    Xattr,
    /// Block `block` of the orphan file `ino`.
    Orphans { ino: Ino, generation: u32, block: FileBlock },
}

/// A metadata block in memory.
pub(crate) struct MetaBlock {
    pub(crate) block: Block,
    pub(crate) kind: MetaKind,
    /// Who uses it; dead once evicted.
    holds: Holds,
    /// Set by a look-up, cleared by reclaim: a second chance.
    used: AtomicBool,
    /// Of a directory's block: whose turn it is to change a name in it. [rank Names]
    names: Mutex<()>,
    state: Mutex<MetaState>,
    /// How often the contents changed, or [`EVICTED`]. Written under `state`.
    version: AtomicU64,
    /// What `state` has as its data, for readers that write nothing; written under `state`, and
    /// there only once somebody read.
    latest: Cached<Latest>,
}

/// What readers read.
struct Latest {
    bytes: Lines,
    /// Of a directory's block, once somebody looked for a name in it.
    names: OnceLock<Option<NameIndex>>,
}

impl Latest {
    fn of(bytes: &[u8]) -> Latest {
        Latest { bytes: Lines::from(bytes), names: OnceLock::new() }
    }
}

/// The contents of a block, as a look at it sees them.
pub(crate) struct Contents<'a> {
    bytes: &'a [u8],
    names: Option<&'a OnceLock<Option<NameIndex>>>,
}

impl Contents<'_> {
    /// Where its names are, if it is a leaf of a directory that was looked at before.
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

/// In place of a version: another object may have later contents.
const EVICTED: u64 = u64::MAX;

struct MetaState {
    data: Arc<[u8]>,
    tracked: Tracked<Arc<[u8]>>,
    /// Looked at since the last change: the next look is worth a copy for all that follow.
    looked_at: bool,
    /// Of a directory's block: the roll that has its names. It ends before the contents change, and
    /// with the block.
    roll: Option<Arc<Roll>>,
    /// Where the transaction in which it is dirty lists it.
    listed: Option<Listed>,
    /// The transaction that allocated it, if it was allocated since it was loaded.
    born: Option<Tid>,
    /// The transaction that freed it: from then on it emits nothing.
    freed: Option<Tid>,
}

impl MetaState {
    fn end_roll(&mut self) {
        if let Some(roll) = self.roll.take() {
            roll.end();
        }
    }
}

impl MetaBlock {
    /// With one hold.
    fn new(block: Block, kind: MetaKind, data: Arc<[u8]>, born: Option<Tid>) -> Arc<MetaBlock> {
        let tracked = Tracked::new();
        let state = MetaState {
            data,
            tracked,
            looked_at: false,
            roll: None,
            listed: None,
            born,
            freed: None,
        };
        Arc::new(MetaBlock {
            block,
            kind,
            holds: Holds::new(1),
            used: AtomicBool::new(false),
            names: Mutex::new(Rank::Names, ()),
            state: Mutex::new(Rank::Guard, state),
            version: AtomicU64::new(0),
            latest: Cached::default(),
        })
    }

    /// A copy of the contents, made without a write to what others read.
    fn copy(&self, pin: &Pin) -> Arc<[u8]> {
        if let Some(latest) = self.latest.get(pin) {
            return Arc::from(&*latest.bytes);
        }
        let state = self.state.lock();
        self.latest.store(Latest::of(&state.data));
        Arc::from(&*state.data)
    }

    /// Runs `look` on the contents as they are, without a write to what others read if these are
    /// many.
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

    /// Runs `look` on the contents as they are, and says which these are.
    pub(crate) fn look_under_guard<R>(&self, look: impl FnOnce(&[u8]) -> R) -> (u64, R) {
        let state = self.state.lock();
        (self.version.load(Ordering::Relaxed), look(&state.data))
    }

    /// The contents, whose names `roll` has as long as they do not change.
    pub(crate) fn enroll(&self, roll: &Arc<Roll>) -> Arc<[u8]> {
        let mut state = self.state.lock();
        state.end_roll();
        state.roll = Some(roll.clone());
        state.data.clone()
    }

    /// Which contents it has: to be asked before they are read.
    pub(crate) fn version(&self) -> u64 {
        // Acquire: a change takes the copy for readers away before it counts itself.
        self.version.load(Ordering::Acquire)
    }

    /// Whoever holds it is alone in changing names in this block of a directory, which is held
    /// shared. Several at once: in ascending order of `block`.
    pub(crate) fn lock_names(&self) -> MutexGuard<'_, ()> {
        self.names.lock_in_order(self.block.0)
    }

    /// The contents as they are now.
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
        let mut state = self.state.lock();
        let MetaState { data, tracked, .. } = &mut *state;
        let newly = tracked.touch(handle.tid(), || data.clone());
        // Before the change, which may tell of itself: see `version` and `Names::publish_read`.
        self.latest.clear();
        if !left_out(Step::ChangeEndsRoll) {
            state.end_roll();
        }
        let MetaState { data, .. } = &mut *state;
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Release);
        let result = change(data);
        state.looked_at = false;
        if newly {
            handle.charge(1);
            state.listed = Some(handle.dirty(Dirty::Meta(self.clone())));
        }
        result
    }

    /// Apply: it is freed. True if an image of it may be in the log, or on its way there.
    fn bury(self: &Arc<Self>, handle: &mut Handle<'_>) -> bool {
        let tid = handle.tid();
        let mut state = self.state.lock();
        state.end_roll();
        let MetaState { data, tracked, listed, born, freed, .. } = &mut *state;
        *freed = Some(tid);
        if *born == Some(tid) {
            // Nobody will ask for it: making and removing a directory over and over would else fill
            // the memory until the next commit.
            tracked.bury(tid, || data.clone());
            let listed = listed.take();
            drop(state);
            drop(listed.and_then(|listed| handle.take_off(listed)));
            return false;
        }
        if tracked.touch(tid, || data.clone()) {
            // On the list so that a frozen image is let go of; it charges nothing.
            handle.dirty(Dirty::Meta(self.clone()));
        }
        true
    }

    /// Committer: the contents as of `tid`, or `None` if it was freed or is not dirty in it.
    pub(crate) fn take(&self, tid: Tid) -> Option<Arc<[u8]>> {
        let mut state = self.state.lock();
        let MetaState { data, tracked, freed, .. } = &mut *state;
        let image = tracked.take(tid, || data.clone())?;
        freed.is_none_or(|since| tid < since).then_some(image)
    }
}

/// A hold on a metadata block: while it lives the block stays the one object of its number.
pub(crate) struct MetaRef(Arc<MetaBlock>);

impl std::ops::Deref for MetaRef {
    type Target = Arc<MetaBlock>;
    fn deref(&self) -> &Arc<MetaBlock> {
        &self.0
    }
}

impl Drop for MetaRef {
    fn drop(&mut self) {
        let ended = self.0.holds.subtract(1);
        debug_assert!(!ended, "metadata blocks have no names to lose");
    }
}

const LOADERS: usize = 64;

/// The metadata blocks in memory.
pub(crate) struct MetaCache {
    blocks: Map<u64, Arc<MetaBlock>>,
    loaders: Box<[Mutex<()>]>,
}

impl MetaCache {
    pub(crate) fn new() -> MetaCache {
        let loaders = (0..LOADERS).map(|_| Mutex::new(Rank::Load, ())).collect();
        MetaCache { blocks: Map::with_capacity(ROOM), loaders }
    }

    /// `block` as `kind`, from memory or loaded and checked. Sleeps; no guard may be held.
    pub(crate) fn get(&self, fs: &Fs, block: Block, kind: MetaKind) -> Result<MetaRef, Error> {
        if let Some(found) = self.cached(block, kind)? {
            return Ok(found);
        }
        let loaded = self.load(fs, block, kind)?;
        fs.note_load();
        Ok(loaded)
    }

    /// The contents of `block`, for a reader under the owner's operation lock: a copy, since a hold
    /// and a reference count would be lines that readers share. What is evicted meanwhile has been
    /// the latest all the same, for who holds the lock keeps changes away.
    pub(crate) fn read(&self, fs: &Fs, block: Block, kind: MetaKind) -> Result<Arc<[u8]>, Error> {
        let pin = lanefs_lanes::pin();
        if let Some(found) = self.blocks.find(&pin, &block.0)
            && found.kind == kind
        {
            if !found.used.load(Ordering::Relaxed) {
                found.used.store(true, Ordering::Relaxed);
            }
            return Ok(found.copy(&pin));
        }
        drop(pin);
        Ok(self.get(fs, block, kind)?.data())
    }

    /// Runs `look` on the contents of `block`, as [`MetaCache::read`] without the copy, and then
    /// `conclude` with what came of it and a way to ask whether the contents are still the same.
    pub(crate) fn look<R>(
        &self,
        fs: &Fs,
        block: Block,
        kind: MetaKind,
        look: impl Fn(&Contents<'_>) -> R,
        conclude: impl FnOnce(&R, &dyn Fn() -> bool),
    ) -> Result<R, Error> {
        let whole = |found: &MetaBlock, pin: &Pin| {
            let version = found.version();
            let result = found.look(pin, look);
            // What is evicted is still found for a moment, while another object of it may change.
            conclude(&result, &|| version != EVICTED && found.version() == version);
            result
        };
        let pin = lanefs_lanes::pin();
        if let Some(found) = self.blocks.find(&pin, &block.0)
            && found.kind == kind
        {
            if !found.used.load(Ordering::Relaxed) {
                found.used.store(true, Ordering::Relaxed);
            }
            return Ok(whole(found, &pin));
        }
        drop(pin);
        let held = self.get(fs, block, kind)?;
        Ok(whole(&held, &lanefs_lanes::pin()))
    }

    fn load(&self, fs: &Fs, block: Block, kind: MetaKind) -> Result<MetaRef, Error> {
        let _loader = self.loaders[block.0 as usize % LOADERS].lock();
        if let Some(found) = self.cached(block, kind)? {
            return Ok(found);
        }
        let read = || {
            fs.check_metadata_place(block, kind)?;
            let bytes = fs.read_block(block)?;
            fs.verify(block, kind, &bytes)?;
            Ok(bytes)
        };
        let bytes = read().inspect_err(|error| fs.note_error(error))?;
        let loaded = MetaBlock::new(block, kind, bytes, None);
        self.blocks.insert(block.0, loaded.clone());
        Ok(MetaRef(loaded))
    }

    fn cached(&self, block: Block, kind: MetaKind) -> Result<Option<MetaRef>, Error> {
        let pin = lanefs_lanes::pin();
        let found = self
            .blocks
            .with(&pin, &block.0, |found| found.holds.add(1).then(|| MetaRef(found.clone())));
        drop(pin);
        // Dead: evicted by now, to be loaded again.
        let Some(found) = found.flatten() else { return Ok(None) };
        if found.kind != kind {
            // Two owners, or one owner's block reached as two things: the image is cross-linked.
            return Err(Error::CrossLinked { block });
        }
        if !found.used.load(Ordering::Relaxed) {
            found.used.store(true, Ordering::Relaxed);
        }
        Ok(Some(found))
    }

    /// Apply: a block that the handle has just allocated.
    pub(crate) fn create(
        &self,
        handle: &mut Handle<'_>,
        block: Block,
        kind: MetaKind,
        data: Arc<[u8]>,
    ) {
        let created = MetaRef(MetaBlock::new(block, kind, data, Some(handle.tid())));
        created.change(handle, |_| ());
        self.blocks.insert(block.0, created.clone());
    }

    /// Apply: `block` is freed. Its image of an earlier transaction, if one is being captured,
    /// stays with that transaction; what a log may hold of it is revoked. The caller clears its bit.
    pub(crate) fn free(&self, handle: &mut Handle<'_>, block: Block) {
        let journaled = match self.blocks.remove_if(&block.0, |_| true) {
            Some(found) => found.bury(handle),
            None => true,
        };
        if journaled {
            handle.revoke(block);
        }
    }

    /// While nothing is captured: forgets blocks that are clean, held by nobody and were not used since
    /// the last call, down to about `keep`.
    pub(crate) fn reclaim(&self, keep: usize) {
        let mut excess = self.blocks.len().saturating_sub(keep);
        if excess == 0 {
            return;
        }
        let mut idle = Vec::new();
        self.blocks.for_each(|_, block| {
            if idle.len() < excess && !block.used.swap(false, Ordering::Relaxed) {
                idle.push(block.clone());
            }
        });
        for block in idle {
            // Dead under the guard: whoever dirties it holds it, and takes the guard for it.
            let mut state = block.state.lock();
            let evicted = state.tracked.is_clean() && block.holds.evict();
            if evicted {
                block.version.store(EVICTED, Ordering::Release);
                // Another object of it may change, which would not know the roll.
                if !left_out(Step::EvictionEndsRoll) {
                    state.end_roll();
                }
            }
            drop(state);
            if evicted && excess > 0 {
                self.blocks.remove_if(&block.block.0, |found| Arc::ptr_eq(found, &block));
                excess -= 1;
            }
        }
    }

    /// How many blocks are in memory.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }
}
