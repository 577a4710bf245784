//! The inodes in memory, by number: look-up, loading, holds, eviction.

use crate::Error;
use crate::fs::Fs;
use crate::inode::{Inode, InodeRef, Parts};
use crate::one_lock::OneLockCache;
use crate::plant::{Step, left_out};
use crate::record::RawRecord;
use crate::table::TableRef;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Mutex, Pin, Rank};
use lanefs_ondisk::{Corruption, Ino, inode as disk};

/// How many locks serialise loading: one loader of an inode at a time, found by its number.
const LOADERS: usize = 64;

/// Inodes, or metadata blocks, that there is room for before their map grows: one megabyte, and two of a
/// small tree hardly ever meet in a bucket.
pub(crate) const ROOM: usize = if cfg!(any(loom, shuttle)) { 0 } else { 1 << 15 };

/// The inodes in memory.
pub(crate) struct Inodes {
    table: Table,
    loaders: Box<[Mutex<()>]>,
    /// The newest flush that the data of any evicted inode needs: a mark may not be lost with its
    /// inode. Written by eviction alone.
    evicted_mark: AtomicU64,
}

/// By number (S5).
enum Table {
    /// Found without a lock.
    Lanes(lanefs_lanes::Map<u32, Arc<Inode>>),
    /// Behind the one lock of the names.
    OneLock(Arc<OneLockCache>),
}

impl Inodes {
    /// None yet; kept in `one_lock` if there is one.
    pub(crate) fn new(one_lock: Option<Arc<OneLockCache>>) -> Inodes {
        let loaders = (0..LOADERS).map(|_| Mutex::new(Rank::InodeLoad, ())).collect();
        let table = match one_lock {
            Some(cache) => Table::OneLock(cache),
            None => Table::Lanes(lanefs_lanes::Map::with_capacity(ROOM)),
        };
        Inodes { table, loaders, evicted_mark: AtomicU64::new(0) }
    }

    /// The inode under a number, without a hold.
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        match &self.table {
            Table::Lanes(map) => map.get(&ino.0),
            Table::OneLock(cache) => cache.with_inode(ino, Arc::clone),
        }
    }

    /// `inode` is what its number means from now on; runs `look` on what it meant before.
    pub(crate) fn insert(&self, inode: Arc<Inode>, look: impl FnOnce(&Inode)) {
        match &self.table {
            Table::Lanes(map) => {
                map.replace(inode.ino.0, inode, |before| look(before));
            }
            Table::OneLock(cache) => {
                if let Some(before) = cache.insert_inode(inode) {
                    look(&before);
                }
            }
        }
    }

    /// Its number means nothing any more, unless it means another inode already.
    fn remove(&self, inode: &Arc<Inode>) {
        match &self.table {
            Table::Lanes(map) => {
                map.remove_if(&inode.ino.0, |found| Arc::ptr_eq(found, inode));
            }
            Table::OneLock(cache) => cache.remove_inode(inode),
        }
    }

    /// Runs `visit` on all; what comes or goes meanwhile may be missed.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&Arc<Inode>)) {
        match &self.table {
            Table::Lanes(map) => map.for_each(|_, inode| visit(inode)),
            Table::OneLock(cache) => cache.inodes().iter().for_each(visit),
        }
    }

    /// At most `most` inodes that were not used of late.
    fn unused(&self, most: usize) -> Vec<Arc<Inode>> {
        match &self.table {
            Table::Lanes(map) => {
                let mut idle = Vec::new();
                map.for_each(|_, inode| {
                    if idle.len() < most && !inode.used.swap(false, Ordering::Relaxed) {
                        idle.push(inode.clone());
                    }
                });
                idle
            }
            Table::OneLock(cache) => cache.oldest_inodes(most),
        }
    }

    /// Whether the inode is in memory, dead or alive.
    pub(crate) fn is_in_memory(&self, pin: &Pin, ino: Ino) -> bool {
        match &self.table {
            Table::Lanes(map) => map.find(pin, &ino.0).is_some(),
            Table::OneLock(cache) => cache.with_inode(ino, |_| ()).is_some(),
        }
    }

    /// A hold on the inode if it is in memory.
    fn cached(&self, ino: Ino) -> Result<Option<InodeRef>, Error> {
        let found = match &self.table {
            Table::Lanes(map) => map.with(&lanefs_lanes::pin(), &ino.0, |inode| {
                let held = InodeRef::new(inode);
                if held.is_some() && !inode.used.load(Ordering::Relaxed) {
                    inode.used.store(true, Ordering::Relaxed);
                }
                held.ok_or_else(|| inode.clone())
            }),
            Table::OneLock(cache) => cache.hold_inode(ino),
        };
        // Dead and freed: gone for good until a new inode takes the number.
        // Dead and not freed: evicted, or its deletion is under way.
        match found {
            None => Ok(None),
            Some(Ok(held)) => Ok(Some(held)),
            Some(Err(dead)) if dead.links() == 0 => Err(Error::Stale),
            Some(Err(_)) => Ok(None),
        }
    }

    /// Evicts inodes that were not changed after `settled`, that nobody holds and that were not used
    /// since the last call, down to about `keep`. Nothing is captured meanwhile ([`crate::pressure`]),
    /// so that an inode found clean has its record in its table block's base image already.
    pub(crate) fn reclaim(&self, keep: usize, settled: Tid) {
        let excess = self.len().saturating_sub(keep);
        if excess == 0 {
            return;
        }
        for inode in self.unused(excess) {
            // Nobody may take its last name away while its holds are counted.
            let Some(_quiet) = inode.op.try_exclusive() else { continue };
            // Dead under the guard: whoever dirties it holds it, and takes the guard for it.
            let state = inode.state.lock();
            // An orphan that could not be ended keeps its place in the file or list.
            let idle = inode.is_settled(&state, settled) && state.orphan.is_none();
            let unheld = || lanefs_lanes::evict(&inode) || left_out(Step::HoldsKeepInodes);
            let evicted = idle && (state.freed || unheld());
            drop(state);
            if evicted {
                // Nobody holds it, so this is its last mark; kept before the loader misses it.
                let mark = inode.flush_mark.load(Ordering::Acquire);
                self.evicted_mark.fetch_max(mark, Ordering::Release);
                // Not left to the destructor, which may run much later.
                drop(inode.window.take());
                self.remove(&inode);
            }
        }
    }

    /// The flush that data of `ino`, which is in memory no more, may need: of the evicted inode if it is
    /// still to be seen, else of all that were evicted.
    fn mark_before(&self, ino: Ino) -> u64 {
        let dead = self.get(ino).map_or(0, |dead| dead.flush_mark.load(Ordering::Acquire));
        dead.max(self.evicted_mark.load(Ordering::Acquire))
    }

    /// How many inodes are in memory.
    pub(crate) fn len(&self) -> usize {
        match &self.table {
            Table::Lanes(map) => map.len(),
            Table::OneLock(cache) => cache.inode_count(),
        }
    }
}

impl Fs {
    /// The inode in memory under number `ino`, without a hold. It may be gone, and the number another
    /// inode's, as soon as this returns: whoever uses it looks again at what led to the number.
    ///
    /// Finds nothing with [`NameCachePolicy::Global`](crate::NameCachePolicy), whose inodes are found
    /// with their names.
    pub fn peek<'p>(&'p self, pin: &'p Pin, ino: Ino) -> Option<&'p Arc<Inode>> {
        match &self.inodes.table {
            Table::Lanes(map) => map.find(pin, &ino.0),
            Table::OneLock(_) => None,
        }
    }

    /// A hold on inode `ino`, read if need be. [`Error::Stale`] if it is free, or if `generation`
    /// is given and is another.
    pub fn get(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        if !self.is_for_names(ino) {
            let cause = lanefs_ondisk::inode::Cause::NoSuchInode;
            return Err(Corruption::Inode { ino, cause }.into());
        }
        self.get_any(ino, generation)
    }

    /// Whether a name may lead to this number: to none of the file system's own files.
    pub(crate) fn is_for_names(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || (ino >= self.geometry.first_ino() && !self.own_files.contains(&ino))
    }

    /// As [`Fs::get`], also for the file system's own files.
    pub(crate) fn get_any(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        let held = match self.inodes.cached(ino)? {
            Some(held) => held,
            None => {
                let loaded = self.load_inode(ino)?;
                self.note_load();
                loaded
            }
        };
        match generation {
            Some(wanted) if wanted != held.generation => Err(Error::Stale),
            _ => Ok(held),
        }
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeRef, Error> {
        let place = self.geometry.inode_place(ino).ok_or(Error::Stale)?;
        let _loader = self.inodes.loaders[ino.0 as usize % LOADERS].lock();
        if let Some(held) = self.inodes.cached(ino)?
            && !left_out(Step::LoaderLooksAgain)
        {
            return Ok(held);
        }
        let table = self.table_block(place.group, place.table_block)?;
        let base = table.base(self)?;
        let raw = self.record_in(&base, place.offset).ok_or(Error::Stale)?;
        let decoded = disk::Inode::decode(raw, ino, &self.geometry, self.checksums)
            .map_err(Error::from)
            .inspect_err(|error| self.note_error(error))?;
        if decoded.links == 0 && !self.finishing_orphans.load(Ordering::Acquire) {
            return Err(Error::Stale);
        }
        let raw = RawRecord::read(raw);
        let inode = self.new_inode_object(ino, table, place.offset, decoded, raw)?;
        inode.flush_mark.store(self.inodes.mark_before(ino), Ordering::Relaxed);
        self.inodes.insert(inode.clone(), |_| ());
        Ok(InodeRef::adopt(inode))
    }

    /// An inode object with one hold, in no map yet.
    pub(crate) fn new_inode_object(
        &self,
        ino: Ino,
        table: TableRef,
        offset: usize,
        decoded: disk::Inode,
        raw: RawRecord,
    ) -> Result<Arc<Inode>, Error> {
        let file_type = decoded.file_type().ok_or(Error::Stale)?;
        let home = self.home.clone();
        let parts = Parts { ino, file_type, home, table, offset, disk: decoded, raw };
        Ok(Arc::new(Inode::new(parts)))
    }

    /// The bytes of a record inside a table block.
    pub(crate) fn record_in<'b>(&self, base: &'b [u8], offset: usize) -> Option<&'b [u8]> {
        base.get(offset..offset.checked_add(self.geometry.inode_size())?)
    }

    /// Adds `n` holds without a guard object: look-ups that a FUSE kernel counts.
    pub fn hold(&self, inode: &InodeRef, n: u64) {
        let held = inode.holds.add(n);
        debug_assert!(held, "a held inode is not dead");
    }

    /// Takes `n` such holds away; the last one frees an inode without names.
    pub fn forget(&self, ino: Ino, n: u64) {
        let Some(inode) = self.inodes.get(ino) else { return };
        if inode.holds.subtract(n) {
            self.delete_inode(&inode);
        }
    }

    /// Frees the inodes without names that [`Fs::hold`] still counts: whoever held them is gone and
    /// will not say so. Nothing else may be under way in this file system.
    pub fn forget_all(&self) {
        let mut ended = Vec::new();
        self.inodes.for_each(|inode| {
            if inode.holds.end_nameless() {
                ended.push(inode.clone());
            }
        });
        ended.iter().for_each(|inode| self.delete_inode(inode));
    }
}
