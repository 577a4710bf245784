//! One lock for all names and inodes, with an LRU list of each.
//!
//! Most file systems in user space have this design, and the kernel had it while it used
//! `dcache_lock`. This implementation is as fast as the design allows. Acquiring the lock once is
//! enough to find a name *and* its inode. Hashes are computed before the lock is taken. Memory is
//! allocated under the lock only for new entries and when a table grows; apart from this growth,
//! every operation takes constant time.
//!
//! *Locking*: `table` has the innermost rank, [`Rank::Bucket`]. References to inodes are taken
//! under the lock and dropped outside of it, because dropping the last one may delete the inode.

use super::lru::LruList;
use lanefs_ext4::{DirId, InodeRef, Named, Names};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, NameKey, Rank, hash_of};
use lanefs_ondisk::Ino;

/// The names and inodes, of which each list has at most `capacity` entries.
pub(crate) struct OneLock {
    table: Mutex<Table>,
    capacity: usize,
    key: NameKey,
}

struct Table {
    names: LruList<Name>,
    inodes: LruList<Arc<InodeRef>>,
    /// Inodes that lost the name by which they were found, until [`OneLock::settle`].
    gone: Vec<Arc<InodeRef>>,
}

struct Name {
    dir: DirId,
    name: Box<[u8]>,
    target: Option<Named>,
}

impl Name {
    fn is(&self, dir: DirId, name: &[u8]) -> bool {
        self.dir == dir && *self.name == *name
    }
}

impl Table {
    /// Puts the inode with this number aside.
    fn lose(&mut self, ino: Ino) {
        let removed = self.inodes.remove(hash_of(&ino.0), |inode| inode.ino() == ino);
        self.gone.extend(removed);
    }
}

impl OneLock {
    pub(crate) fn new(capacity: usize) -> OneLock {
        let table = Table { names: LruList::new(), inodes: LruList::new(), gone: Vec::new() };
        OneLock {
            table: Mutex::new(Rank::Bucket, table),
            capacity: capacity.max(1),
            key: NameKey::of_process(),
        }
    }

    /// Returns the inode to which `name` in `dir` refers, if both are in the table. All threads
    /// count their references in one word, because they take the lock in any case.
    pub(crate) fn hold(&self, dir: DirId, name: &[u8]) -> Option<Arc<InodeRef>> {
        let hash = dir.hash_of(name, self.key);
        let mut table = self.table.lock();
        let ino = table.names.find(hash, |entry| entry.is(dir, name))?.target?.ino;
        table.inodes.find(hash_of(&ino.0), |inode| inode.ino() == ino).map(|inode| inode.clone())
    }

    /// Keeps a reference to the inode.
    pub(crate) fn keep(&self, inode: Arc<InodeRef>) {
        let (hash, ino) = (hash_of(&inode.ino().0), inode.ino());
        let mut table = self.table.lock();
        if table.inodes.find(hash, |kept| kept.ino() == ino).is_some() {
            drop(table);
            return drop(inode);
        }
        let full = table.inodes.len() >= self.capacity;
        let oldest = if full { table.inodes.remove_oldest() } else { None };
        table.inodes.insert(hash, inode);
        drop(table);
        drop(oldest);
    }

    /// Drops the inodes that lost their names. The caller holds no lock.
    pub(crate) fn settle(&self) {
        let gone = std::mem::take(&mut self.table.lock().gone);
        drop(gone);
    }

    /// Drops the inode with this number, if it is in the table. The caller holds no lock.
    pub(crate) fn drop_inode(&self, ino: Ino) {
        self.table.lock().lose(ino);
        self.settle();
    }

    /// Drops everything, so that the file system can be closed.
    pub(crate) fn clear(&self) {
        let empty = Table { names: LruList::new(), inodes: LruList::new(), gone: Vec::new() };
        let all = std::mem::replace(&mut *self.table.lock(), empty);
        drop(all);
    }
}

impl Names for OneLock {
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
        if let Some(known) = table.names.find(hash, |known| known.is(dir, name)) {
            let before = std::mem::replace(&mut known.target, entry);
            if let Some(before) = before.filter(|before| Some(*before) != entry) {
                table.lose(before.ino);
            }
            return;
        }
        let full = table.names.len() >= self.capacity;
        let oldest = if full { table.names.remove_oldest() } else { None };
        table.names.insert(hash, Name { dir, name: name.into(), target: entry });
        drop(table);
        drop(oldest);
    }

    fn forget(&self, _: DirId) {
        // Names are looked up with the directory's generation, so the entries of a deleted
        // directory are not used any more and soon become the oldest.
    }
}
