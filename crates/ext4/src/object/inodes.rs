//! The inodes in memory, by number: look-up, loading, holds, eviction.

use crate::cache::{Cache, Cached, Evicted};
use crate::error::Error;
use crate::object::inode::{Inode, InodeRef};
use crate::object::name_cache::OneLockCache;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Pin, Rank};
use lanefs_ondisk::Ino;

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

    /// The inode under a number, without a reference, as long as `pin` lives. It may be gone, and the
    /// number another inode's, as soon as this returns. Inodes behind one lock are not found so.
    pub(crate) fn peek<'p>(&'p self, pin: &'p Pin, ino: Ino) -> Option<&'p Arc<Inode>> {
        match &self.table {
            Table::Lanes(cache) => cache.find(pin, u64::from(ino.0)),
            Table::OneLock { .. } => None,
        }
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
    pub(super) fn hold_or_load(
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
