//! The mounted file system.

use crate::data::file_data::FileData;
use crate::error::Error;
use crate::object::inode::{Inode, InodeRef};
use crate::object::objects::Objects;
use crate::policy::{Atime, Overwrite};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Pin};
use lanefs_ondisk::Ino;
use lanefs_ondisk::superblock::Superblock;

/// The operations of a mounted file system. All take `&self`, from any number of threads.
pub struct Fs {
    pub(crate) objects: Objects,
    /// Held for a directory that changes its parent, for the loop check.
    pub(crate) topology: Mutex<()>,
    pub(crate) atime: Atime,
    pub(crate) overwrite: Overwrite,
    pub(crate) cache_bytes: u64,
}

impl Fs {
    /// The root directory.
    pub fn root(&self) -> Result<InodeRef, Error> {
        self.get(Ino::ROOT, None)
    }

    /// A reference to inode `ino`, read if need be. [`Error::Stale`] if it is free, or if `generation`
    /// is given and is another.
    pub fn get(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        self.objects.get(ino, generation)
    }

    /// The inode in memory under number `ino`, without a reference. It may be gone, and the number
    /// another inode's, as soon as this returns: the caller looks again at what led to the number.
    ///
    /// Finds nothing with [`NameCachePolicy::Global`](crate::policy::NameCachePolicy), whose inodes are
    /// found with their names.
    pub fn peek<'p>(&'p self, pin: &'p Pin, ino: Ino) -> Option<&'p Arc<Inode>> {
        self.objects.inodes.peek(pin, ino)
    }

    /// True if nothing can be changed: mounted so, or because of an error.
    pub fn is_read_only(&self) -> bool {
        self.objects.is_read_only()
    }

    /// Why the file system became read-only while running, if it did.
    pub fn failure(&self) -> Option<Error> {
        self.objects.journal.cause().map(Error::from)
    }

    /// The superblock as the last commit left it.
    pub fn superblock(&self) -> Superblock {
        self.objects.superblock.snapshot()
    }

    /// What the journal has done since the mount.
    pub fn journal_statistics(&self) -> lanefs_journal::Statistics {
        self.objects.journal.statistics()
    }

    /// Inodes, metadata blocks and inode-table blocks in memory.
    pub fn cached(&self) -> (usize, usize, usize) {
        self.objects.cached()
    }

    /// An inode was made: there may be too much in memory. No lock after
    /// [`lanefs_lanes::Rank::InodeLoad`] is held.
    pub fn note_made(&self) {
        self.objects.note_load();
    }

    pub(crate) fn data<'m>(&'m self, inode: &'m Arc<Inode>) -> FileData<'m> {
        FileData { objects: &self.objects, inode }
    }
}
