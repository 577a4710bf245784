//! The inodes in memory, by number: look-up, loading, holds, eviction.

use crate::Error;
use crate::cache::{Cache, Cached, Evicted};
use crate::fs::Fs;
use crate::object::inode::{Inode, InodeRef, Parts};
use crate::object::one_lock::OneLockCache;
use crate::object::record::RawRecord;
use crate::object::table::TableRef;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_lanes::{Mutex, Pin, Rank};
use lanefs_ondisk::{Corruption, Ino, inode as disk};

/// The inodes in memory.
pub(crate) struct Inodes {
    table: Table,
}

/// By number (S5).
enum Table {
    /// Found without a lock.
    Lanes(Cache<Inode>),
    /// Behind the one lock of the names.
    OneLock { cache: Arc<OneLockCache>, loader: Mutex<()> },
}

impl Inodes {
    /// None yet, with room for `room` before the map grows; kept in `one_lock` if there is one.
    pub(crate) fn new(one_lock: Option<Arc<OneLockCache>>, room: usize) -> Inodes {
        let table = match one_lock {
            Some(cache) => Table::OneLock { cache, loader: Mutex::new(Rank::InodeLoad, ()) },
            None => Table::Lanes(Cache::new(room, Rank::InodeLoad)),
        };
        Inodes { table }
    }

    /// The inode under a number, without a hold.
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        match &self.table {
            Table::Lanes(cache) => cache.find(&lanefs_lanes::pin(), u64::from(ino.0)).cloned(),
            Table::OneLock { cache, .. } => cache.with_inode(ino, Arc::clone),
        }
    }

    /// `inode` is what its number means from now on; runs `look` on what it meant before.
    pub(crate) fn insert(&self, inode: Arc<Inode>, look: impl FnOnce(&Inode)) {
        match &self.table {
            Table::Lanes(cache) => cache.insert(inode, look),
            Table::OneLock { cache, .. } => {
                if let Some(before) = cache.insert_inode(inode) {
                    look(&before);
                }
            }
        }
    }

    /// Its number means nothing any more, unless it means another inode already.
    fn remove(&self, inode: &Arc<Inode>) {
        match &self.table {
            Table::Lanes(cache) => cache.remove(inode),
            Table::OneLock { cache, .. } => cache.remove_inode(inode),
        }
    }

    /// Runs `visit` on all; what comes or goes meanwhile may be missed.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<Inode>)) {
        match &self.table {
            Table::Lanes(cache) => cache.for_each(visit),
            Table::OneLock { cache, .. } => cache.inodes().iter().for_each(visit),
        }
    }

    /// A hold on the inode if it is in memory.
    fn cached(&self, ino: Ino) -> Result<Option<InodeRef>, Error> {
        let found = match &self.table {
            Table::Lanes(cache) => cache.hold(u64::from(ino.0), |inode| {
                Some(InodeRef::new(inode).ok_or_else(|| inode.clone()))
            }),
            Table::OneLock { cache, .. } => cache.hold_inode(ino),
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

    /// A hold on an inode; if it is not in memory, `load` makes and inserts it, one thread at a time.
    fn hold_or_load(
        &self,
        ino: Ino,
        load: impl FnOnce() -> Result<InodeRef, Error>,
    ) -> Result<InodeRef, Error> {
        match &self.table {
            Table::Lanes(cache) => cache.hold_or_load(u64::from(ino.0), || self.cached(ino), load),
            Table::OneLock { loader, .. } => {
                if let Some(held) = self.cached(ino)? {
                    return Ok(held);
                }
                let _loader = loader.lock();
                self.cached(ino)?.map_or_else(load, Ok)
            }
        }
    }

    /// Evicts up to `wanted` inodes, looking at up to `buckets` buckets of them. `settled` is the
    /// last transaction that owes no inode anything.
    pub(crate) fn evict(&self, wanted: usize, buckets: usize, settled: Tid) -> usize {
        match &self.table {
            Table::Lanes(cache) => cache.evict(wanted, buckets, settled),
            Table::OneLock { cache, .. } => {
                let oldest = cache.oldest_inodes(wanted);
                let gone = |inode: &&Arc<Inode>| inode.evict(settled) == Evicted::Object;
                oldest.iter().filter(gone).map(|inode| self.remove(inode)).count()
            }
        }
    }

    /// How many inodes are in memory.
    pub(crate) fn len(&self) -> usize {
        match &self.table {
            Table::Lanes(cache) => cache.len(),
            Table::OneLock { cache, .. } => cache.inode_count(),
        }
    }
}

impl Fs {
    /// The inode in memory under number `ino`, without a hold. It may be gone, and the number another
    /// inode's, as soon as this returns: the caller looks again at what led to the number.
    ///
    /// Finds nothing with [`NameCachePolicy::Global`](crate::NameCachePolicy), whose inodes are found
    /// with their names.
    pub fn peek<'p>(&'p self, pin: &'p Pin, ino: Ino) -> Option<&'p Arc<Inode>> {
        match &self.inodes.table {
            Table::Lanes(cache) => cache.find(pin, u64::from(ino.0)),
            Table::OneLock { .. } => None,
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
        let mut was_loaded = false;
        let load = || {
            was_loaded = true;
            self.load_inode(ino)
        };
        let held = self.inodes.hold_or_load(ino, load)?;
        if was_loaded {
            self.note_load();
        }
        match generation {
            Some(wanted) if wanted != held.generation => Err(Error::Stale),
            _ => Ok(held),
        }
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeRef, Error> {
        let place = self.geometry.inode_place(ino).ok_or(Error::Stale)?;
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
        // Data of the object before, evicted by now, may need a flush.
        let mark = self.inodes.get(ino).map_or(0, |dead| dead.flush_mark.load(Ordering::Acquire));
        let mark = mark.max(self.home.evicted_mark.0.load(Ordering::Acquire));
        inode.flush_mark.store(mark, Ordering::Relaxed);
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
