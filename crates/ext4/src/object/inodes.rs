//! Keeps the inodes in memory by number: looks them up, loads them, takes holds on them, and evicts
//! them.

use crate::cache::{Cache, Cached, Evicted};
use crate::error::Error;
use crate::object::inode::{Inode, InodeRef};
use crate::object::name_cache::OneLockCache;
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Pin, Rank};
use lanefs_ondisk::Ino;

/// The set of inodes in memory.
pub(crate) struct Inodes {
    table: Table,
}

/// Maps numbers to inodes, as [`NameCachePolicy`](crate::policy::NameCachePolicy) selects.
enum Table {
    /// Looks inodes up without a lock.
    Lanes(Cache<Inode>),
    /// Keeps inodes behind the single lock that also protects names.
    OneLock { cache: Arc<OneLockCache>, loader: Mutex<()> },
}

impl Inodes {
    /// Creates an empty set whose map grows only after about `room` inodes were added; uses
    /// `one_lock` if given.
    pub(crate) fn new(one_lock: Option<Arc<OneLockCache>>, room: usize) -> Inodes {
        let table = match one_lock {
            Some(cache) => Table::OneLock { cache, loader: Mutex::new(Rank::InodeLoad, ()) },
            None => Table::Lanes(Cache::new(room, Rank::InodeLoad)),
        };
        Inodes { table }
    }

    /// Returns the inode with this number, without a hold. The reference is valid as long as `pin`
    /// lives, but the inode may be deleted, and its number reused, as soon as this returns. The
    /// result is always `None` if one lock guards all inodes
    /// ([`NameCachePolicy::Global`](crate::policy::NameCachePolicy)).
    #[inline]
    pub(crate) fn peek<'p>(&'p self, pin: &'p Pin, ino: Ino) -> Option<&'p Arc<Inode>> {
        match &self.table {
            Table::Lanes(cache) => cache.find(pin, u64::from(ino.0)),
            Table::OneLock { .. } => None,
        }
    }

    /// Returns the inode with this number, without a hold.
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        match &self.table {
            Table::Lanes(cache) => cache.find(&lanefs_lanes::pin(), u64::from(ino.0)).cloned(),
            Table::OneLock { cache, .. } => cache.with_inode(ino, Arc::clone),
        }
    }

    /// Makes the number of `inode` refer to `inode`, and runs `look` on the inode to which the
    /// number referred before.
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

    /// Removes the entry of the inode's number, unless it already refers to another inode.
    fn remove(&self, inode: &Arc<Inode>) {
        match &self.table {
            Table::Lanes(cache) => cache.remove(inode),
            Table::OneLock { cache, .. } => cache.remove_inode(inode),
        }
    }

    /// Runs `visit` on all inodes; may miss inodes that are added or removed meanwhile.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<Inode>)) {
        match &self.table {
            Table::Lanes(cache) => cache.for_each(visit),
            Table::OneLock { cache, .. } => cache.inodes().iter().for_each(visit),
        }
    }

    /// Returns the inodes in memory that have lost their last name.
    pub(crate) fn nameless(&self) -> Vec<Arc<Inode>> {
        let mut found = Vec::new();
        self.for_each(|inode| {
            if inode.holds.is_nameless() {
                found.push(inode.clone());
            }
        });
        found
    }

    /// Returns a hold on the inode if it is in memory. [`Error::Stale`] if it was deleted.
    fn cached(&self, ino: Ino) -> Result<Option<InodeRef>, Error> {
        let found = match &self.table {
            Table::Lanes(cache) => cache.hold(u64::from(ino.0), |inode| {
                Some(InodeRef::new(inode).ok_or_else(|| inode.clone()))
            }),
            Table::OneLock { cache, .. } => cache.hold_inode(ino),
        };
        // A dead object without links means that the inode was deleted or is being deleted, and
        // that no inode has this number until a new inode takes it. A dead object with links was
        // only evicted.
        match found {
            None => Ok(None),
            Some(Ok(held)) => Ok(Some(held)),
            Some(Err(dead)) if dead.links() == 0 => Err(Error::Stale),
            Some(Err(_)) => Ok(None),
        }
    }

    /// Returns a hold on an inode. If the inode is not in memory, `load` creates and inserts it.
    /// Only one thread at a time runs `load` for a number.
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

    /// Looks at up to `buckets` buckets, evicts up to `wanted` inodes, and returns the number of
    /// evicted inodes. `settled` is the last transaction that is settled, that is, whose work after
    /// the commit is done.
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

    /// Returns the number of inodes in memory.
    pub(crate) fn len(&self) -> usize {
        match &self.table {
            Table::Lanes(cache) => cache.len(),
            Table::OneLock { cache, .. } => cache.inode_count(),
        }
    }
}
