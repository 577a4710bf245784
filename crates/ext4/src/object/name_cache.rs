//! Keeps names and inodes behind one lock, together with one LRU list of the names and one of the
//! inodes (the policy `global` of S5 in `docs/seeds.md`).
//!
//! Most file systems in user space have this design, and the kernel had it while it used
//! `dcache_lock`. This implementation is as fast as the design allows. Acquiring the lock once is
//! enough to find a name *and* its inode. Hashes are computed before the lock is taken. Memory is
//! allocated under the lock only for new entries and when a table grows; apart from this growth,
//! every operation takes constant time. This cache exists as a baseline for measurements.
//!
//! *Locking*: `table` has the innermost rank, [`Rank::Bucket`]. Holds on inodes are taken under the
//! lock and dropped outside of it.

mod lru;

use crate::names::{DirId, Named};
use crate::object::inode::{Inode, InodeRef};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, NameKey, Rank};
use lanefs_ondisk::Ino;
use lru::LruList;

/// Receives the names that are read or changed. The caller holds the directory's operation lock. To
/// publish a change, it holds this lock exclusively, or holds it shared together with the guard of
/// the one block that changes. To publish the result of a look-up that missed, it holds the lock
/// shared. So the cached entries are never older than the directory, and a thread that sees a
/// changed block finds the changed names in the cache.
pub trait Names: Send + Sync {
    /// Records that `name` in `dir` refers to `entry` from now on, or that it does not exist.
    fn publish(&self, dir: DirId, name: &[u8], entry: Option<Named>) {
        self.publish_read(dir, name, entry, &|| true);
    }
    /// Does the same as [`Names::publish`] for a caller that only read the entry. Does nothing if
    /// `still` returns false, that is, if the directory has changed since the entry was read. No
    /// other publication of this name comes between the call of `still` and this publication. A
    /// caller that changes a name must change the directory before it publishes the name, so that
    /// the `still` of each reader returns false.
    fn publish_read(&self, dir: DirId, name: &[u8], entry: Option<Named>, still: &dyn Fn() -> bool);
    /// Notes that the directory is deleted.
    fn forget(&self, dir: DirId);
    /// Returns this cache if it can also keep inodes, behind the same lock as names. The mount then
    /// keeps its inodes in this cache
    /// ([`NameCachePolicy::Global`](crate::policy::NameCachePolicy)).
    fn one_lock(self: Arc<Self>) -> Option<Arc<OneLockCache>> {
        None
    }
}

/// Implements [`Names`] without keeping any name.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn publish_read(&self, _: DirId, _: &[u8], _: Option<Named>, _: &dyn Fn() -> bool) {}
    fn forget(&self, _: DirId) {}
}

/// The cache of names and inodes behind one lock.
pub struct OneLockCache {
    table: Mutex<Table>,
    capacity: usize,
    key: NameKey,
}

struct Table {
    names: LruList<Name>,
    inodes: LruList<Arc<Inode>>,
    published: u64,
}

struct Name {
    dir: DirId,
    name: Box<[u8]>,
    target: Option<Named>,
    /// How many publications the cache had received when this name was last published.
    mark: u64,
}

impl Name {
    fn is(&self, dir: DirId, name: &[u8]) -> bool {
        self.dir == dir && *self.name == *name
    }
}

fn hash_of(ino: Ino) -> u64 {
    lanefs_lanes::hash_of(&ino.0)
}

impl OneLockCache {
    /// Creates a cache of at most `names` names, and of as many inodes as the mount allows.
    pub fn new(names: usize) -> OneLockCache {
        let table = Table { names: LruList::new(), inodes: LruList::new(), published: 0 };
        OneLockCache {
            table: Mutex::new(Rank::Bucket, table),
            capacity: names.max(1),
            key: NameKey::of_process(),
        }
    }

    /// Returns the cached entry of `name` in `dir`: the inode to which the name refers, if any, and
    /// a number that changes when the name is published again.
    pub fn name(&self, dir: DirId, name: &[u8]) -> Option<(Option<Named>, u64)> {
        let hash = dir.hash_of(name, self.key);
        let mut table = self.table.lock();
        let found = table.names.find(hash, |entry| entry.is(dir, name))?;
        Some((found.target, found.mark))
    }

    /// Returns the inode to which `name` in `dir` refers, if both the name and the inode are
    /// cached.
    pub fn step(&self, dir: DirId, name: &[u8]) -> Option<Arc<Inode>> {
        self.inode_named(dir, name, |inode| Some(inode.clone()))
    }

    /// Does the same as [`OneLockCache::step`], but returns a hold.
    pub fn hold(&self, dir: DirId, name: &[u8]) -> Option<InodeRef> {
        self.inode_named(dir, name, InodeRef::new)
    }

    fn inode_named<R>(
        &self,
        dir: DirId,
        name: &[u8],
        take: impl FnOnce(&Arc<Inode>) -> Option<R>,
    ) -> Option<R> {
        let hash = dir.hash_of(name, self.key);
        let mut table = self.table.lock();
        let ino = table.names.find(hash, |entry| entry.is(dir, name))?.target?.ino;
        take(table.inodes.find(hash_of(ino), |inode| inode.ino == ino)?)
    }

    /// Runs `look` on the inode with this number, under the lock.
    pub(crate) fn with_inode<R>(&self, ino: Ino, look: impl FnOnce(&Arc<Inode>) -> R) -> Option<R> {
        let hash = hash_of(ino);
        self.table.lock().inodes.find(hash, |inode| inode.ino == ino).map(|inode| look(inode))
    }

    /// Returns a hold on the inode with this number, or the inode without a hold if it is dead.
    pub(crate) fn hold_inode(&self, ino: Ino) -> Option<Result<InodeRef, Arc<Inode>>> {
        let hash = hash_of(ino);
        let mut table = self.table.lock();
        let found = table.inodes.find(hash, |inode| inode.ino == ino)?;
        Some(InodeRef::new(found).ok_or_else(|| found.clone()))
    }

    /// Inserts `inode` and returns the inode that had the number before, to be dropped outside of
    /// the lock.
    pub(crate) fn insert_inode(&self, inode: Arc<Inode>) -> Option<Arc<Inode>> {
        let (hash, ino) = (hash_of(inode.ino), inode.ino);
        let mut table = self.table.lock();
        if let Some(found) = table.inodes.find(hash, |found| found.ino == ino) {
            return Some(std::mem::replace(found, inode));
        }
        table.inodes.insert(hash, inode);
        None
    }

    pub(crate) fn remove_inode(&self, inode: &Arc<Inode>) {
        let hash = hash_of(inode.ino);
        let removed = self.table.lock().inodes.remove(hash, |found| Arc::ptr_eq(found, inode));
        drop(removed);
    }

    /// Returns up to `most` inodes, the least recently used ones, and moves them to the newest end
    /// of the list.
    pub(crate) fn oldest_inodes(&self, most: usize) -> Vec<Arc<Inode>> {
        self.table.lock().inodes.turn_over(most)
    }

    pub(crate) fn inodes(&self) -> Vec<Arc<Inode>> {
        self.table.lock().inodes.iter().cloned().collect()
    }

    pub(crate) fn inode_count(&self) -> usize {
        self.table.lock().inodes.len()
    }
}

impl Names for OneLockCache {
    fn publish_read(
        &self,
        dir: DirId,
        name: &[u8],
        entry: Option<Named>,
        still: &dyn Fn() -> bool,
    ) {
        let hash = dir.hash_of(name, self.key);
        let mut table = self.table.lock();
        if !still() {
            return;
        }
        table.published += 1;
        let mark = table.published;
        if let Some(known) = table.names.find(hash, |known| known.is(dir, name)) {
            (known.target, known.mark) = (entry, mark);
            return;
        }
        let full = table.names.len() >= self.capacity;
        let gone = if full { table.names.remove_oldest() } else { None };
        table.names.insert(hash, Name { dir, name: name.into(), target: entry, mark });
        drop(table);
        drop(gone);
    }

    fn forget(&self, _: DirId) {
        // Names are looked up with the directory's generation, so the entries of a deleted
        // directory are not used any more and soon become the oldest.
    }

    fn one_lock(self: Arc<Self>) -> Option<Arc<OneLockCache>> {
        Some(self)
    }
}
