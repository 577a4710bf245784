//! Names, inodes and both lists in order of use behind one lock (S5, before).
//!
//! What most file systems in user space have, and what the kernel had with its `dcache_lock`,
//! written as well as such a one can be: one hold finds a name *and* its inode, hashes are computed
//! before it, nothing is allocated or freed under it but a new name's entry, and everything takes
//! constant time. It is there to be measured against.
//!
//! *Locking*: `table` is of [`Rank::Bucket`], the innermost; holds on inodes are counted under it,
//! and ended outside of it.

mod lru;

use crate::names::{DirId, Named};
use crate::object::inode::{Inode, InodeRef};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::Ino;
use lru::LruList;

/// Hears of names, with the directory's operation lock held: exclusively for a change; shared for a
/// change of one block, whose guard is held too; shared for a look-up that missed. So what it keeps
/// is never older than the directory, and who sees a block changed finds its names changed here.
pub trait Names: Send + Sync {
    /// `name` in `dir` leads to `entry` from now on, or to nothing.
    fn publish(&self, dir: DirId, name: &[u8], entry: Option<Named>) {
        self.publish_read(dir, name, entry, &|| true);
    }
    /// As [`Names::publish`], by one who only read: unless `still`, asked where no publication of
    /// this name can come between, says that what was read has changed since. Whoever changes a
    /// name lets `still` say so first, and publishes then.
    fn publish_read(&self, dir: DirId, name: &[u8], entry: Option<Named>, still: &dyn Fn() -> bool);
    /// The directory is gone.
    fn forget(&self, dir: DirId);
    /// The cache that keeps inodes behind the same lock as names, if this is one: the mount then
    /// keeps its inodes there ([`NameCachePolicy::Global`](crate::policy::NameCachePolicy)).
    fn one_lock(self: Arc<Self>) -> Option<Arc<OneLockCache>> {
        None
    }
}

/// Keeps no names.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn publish_read(&self, _: DirId, _: &[u8], _: Option<Named>, _: &dyn Fn() -> bool) {}
    fn forget(&self, _: DirId) {}
}

/// The cache behind one lock.
pub struct OneLockCache {
    table: Mutex<Table>,
    capacity: usize,
}

struct Table {
    names: LruList<Name>,
    inodes: LruList<Arc<Inode>>,
    published: u64,
}

struct Name {
    dir: DirId,
    name: Box<[u8]>,
    leads_to: Option<Named>,
    /// The count of publications when it was last published.
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
    /// A cache of at most `names` names, and of as many inodes as the mount allows.
    pub fn new(names: usize) -> OneLockCache {
        let table = Table { names: LruList::new(), inodes: LruList::new(), published: 0 };
        OneLockCache { table: Mutex::new(Rank::Bucket, table), capacity: names.max(1) }
    }

    /// What is known of `name` in `dir`: what it leads to, and a number that changes when the name is
    /// published again.
    pub fn name(&self, dir: DirId, name: &[u8]) -> Option<(Option<Named>, u64)> {
        let hash = dir.hash_of(name);
        let mut table = self.table.lock();
        let found = table.names.find(hash, |entry| entry.is(dir, name))?;
        Some((found.leads_to, found.mark))
    }

    /// The inode that `name` in `dir` leads to, if both are in memory.
    pub fn step(&self, dir: DirId, name: &[u8]) -> Option<Arc<Inode>> {
        self.inode_named(dir, name, |inode| Some(inode.clone()))
    }

    /// As [`OneLockCache::step`], held.
    pub fn hold(&self, dir: DirId, name: &[u8]) -> Option<InodeRef> {
        self.inode_named(dir, name, InodeRef::new)
    }

    fn inode_named<R>(
        &self,
        dir: DirId,
        name: &[u8],
        take: impl FnOnce(&Arc<Inode>) -> Option<R>,
    ) -> Option<R> {
        let hash = dir.hash_of(name);
        let mut table = self.table.lock();
        let ino = table.names.find(hash, |entry| entry.is(dir, name))?.leads_to?.ino;
        take(table.inodes.find(hash_of(ino), |inode| inode.ino == ino)?)
    }

    /// Runs `look` on the inode of this number, under the lock.
    pub(crate) fn with_inode<R>(&self, ino: Ino, look: impl FnOnce(&Arc<Inode>) -> R) -> Option<R> {
        let hash = hash_of(ino);
        self.table.lock().inodes.find(hash, |inode| inode.ino == ino).map(|inode| look(inode))
    }

    /// A hold on the inode of this number, or the inode if it is dead.
    pub(crate) fn hold_inode(&self, ino: Ino) -> Option<Result<InodeRef, Arc<Inode>>> {
        let hash = hash_of(ino);
        let mut table = self.table.lock();
        let found = table.inodes.find(hash, |inode| inode.ino == ino)?;
        Some(InodeRef::new(found).ok_or_else(|| found.clone()))
    }

    /// The inode that had the number before: its end is not for under the lock.
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

    /// The `most` inodes that were not used for longest; each is asked for once around the list.
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
        let hash = dir.hash_of(name);
        let mut table = self.table.lock();
        if !still() {
            return;
        }
        table.published += 1;
        let mark = table.published;
        if let Some(known) = table.names.find(hash, |known| known.is(dir, name)) {
            (known.leads_to, known.mark) = (entry, mark);
            return;
        }
        let full = table.names.len() >= self.capacity;
        let gone = if full { table.names.remove_oldest() } else { None };
        table.names.insert(hash, Name { dir, name: name.into(), leads_to: entry, mark });
        drop(table);
        drop(gone);
    }

    fn forget(&self, _: DirId) {
        // Nobody asks for a generation that is gone; its entries are the oldest soon.
    }

    fn one_lock(self: Arc<Self>) -> Option<Arc<OneLockCache>> {
        Some(self)
    }
}
