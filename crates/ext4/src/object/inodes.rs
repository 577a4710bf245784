//! Keeps the inodes in memory by number: looks them up, loads them, takes holds on them, and evicts
//! them.

use crate::cache::Cache;
use crate::object::inode::{Inode, InodeRef};
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Pin, Rank};
use lanefs_ondisk::Ino;
use lanefs_plan::Error;

/// The set of inodes in memory.
pub(crate) struct Inodes {
    cache: Cache<Inode>,
}

impl Inodes {
    /// Creates an empty set whose map grows only after about `room` inodes were added.
    pub(crate) fn new(room: usize) -> Inodes {
        Inodes { cache: Cache::new(room, Rank::InodeLoad) }
    }

    /// Returns the inode with this number, without a hold. The reference is valid as long as `pin`
    /// lives, but the inode may be deleted, and its number reused, as soon as this returns.
    #[inline]
    pub(crate) fn peek<'p>(&'p self, pin: &'p Pin, ino: Ino) -> Option<&'p Arc<Inode>> {
        self.cache.find(pin, u64::from(ino.0))
    }

    /// Returns the inode with this number, without a hold.
    pub(crate) fn get(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.peek(&lanefs_lanes::pin(), ino).cloned()
    }

    /// Makes the number of `inode` refer to `inode`, and runs `look` on the inode to which the
    /// number referred before.
    pub(crate) fn insert(&self, inode: Arc<Inode>, look: impl FnOnce(&Inode)) {
        self.cache.insert(inode, look);
    }

    /// Runs `visit` on all inodes; may miss inodes that are added or removed meanwhile.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<Inode>)) {
        self.cache.for_each(visit);
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
        let found = self.cache.hold(u64::from(ino.0), |inode| {
            Some(InodeRef::new(inode).ok_or_else(|| inode.clone()))
        });
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
        self.cache.hold_or_load(u64::from(ino.0), || self.cached(ino), load)
    }

    /// Looks at up to `buckets` buckets, evicts up to `wanted` inodes, and returns the number of
    /// evicted inodes. `settled` is the last transaction that is settled, that is, whose work after
    /// the commit is done.
    pub(crate) fn evict(&self, wanted: usize, buckets: usize, settled: Tid) -> usize {
        self.cache.evict(wanted, buckets, settled)
    }

    /// Returns the number of inodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }
}
