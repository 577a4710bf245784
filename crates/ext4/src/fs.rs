//! The mounted file system.

use crate::data::file_data::FileData;
use crate::flags;
use crate::object::inode::{Inode, InodeRef};
use crate::object::objects::Objects;
use crate::policy::{Atime, Synchronous};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Pin};
use lanefs_ondisk::Ino;
use lanefs_ondisk::superblock::Superblock;
use lanefs_plan::Error;

/// The operations of a mounted file system. All take `&self`, and any number of threads may call
/// them.
pub struct Fs {
    pub(crate) objects: Objects,
    /// Held while a directory moves to another parent, so that the check for loops stays valid.
    pub(crate) topology: Mutex<()>,
    /// Held while the file system becomes larger. [rank Topology, never held together with
    /// `topology`]
    pub(crate) growing: Mutex<()>,
    pub(crate) atime: Atime,
    pub(crate) synchronous: Synchronous,
    pub(crate) cache_bytes: u64,
}

impl Fs {
    /// Returns the root directory.
    pub fn root(&self) -> Result<InodeRef, Error> {
        self.get(Ino::ROOT, None)
    }

    /// Returns a reference to inode `ino`, read from disk if necessary. Fails with [`Error::Stale`]
    /// if the inode is free or holds the value of an attribute, or if `generation` is given and is
    /// not the inode's generation. To look up a name, use [`Fs::find`] instead, because the number
    /// in a directory entry may be reused before this call.
    pub fn get(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        self.objects.get(ino, generation)
    }

    /// Returns the inode with number `ino` if it is in memory. Takes no reference. The inode may be
    /// deleted and the number reused as soon as this returns, so the caller must check afterwards
    /// that the name still refers to this number.
    #[inline]
    pub fn peek<'p>(&'p self, pin: &'p Pin, ino: Ino) -> Option<&'p Arc<Inode>> {
        self.objects.inodes.peek(pin, ino)
    }

    /// Returns whether the file system cannot be changed: the mount is read-only, or became so
    /// after an error.
    pub fn is_read_only(&self) -> bool {
        self.objects.is_read_only()
    }

    /// Fails if the file system cannot be changed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], or [`Error::Forked`] in a child of fork(2).
    pub fn check_writable(&self) -> Result<(), Error> {
        self.objects.check_writable()
    }

    /// Returns whether inodes have room for nanoseconds in their times.
    pub fn has_fine_times(&self) -> bool {
        self.objects.volume.geometry().inode_size() > 128
    }

    /// Returns whether directories can ignore the case of names (feature `casefold`).
    pub fn has_casefold(&self) -> bool {
        self.objects.volume.folding.is_some()
    }

    /// Returns whether there can be verity files (feature `verity`).
    pub fn has_verity(&self) -> bool {
        self.objects.volume.has_verity
    }

    /// Returns whether the names in `dir` are kept out of the name cache. This is so if `dir`
    /// ignores case or is encrypted.
    #[inline]
    pub fn is_uncached(&self, dir: &Inode) -> bool {
        let volume = &self.objects.volume;
        (volume.folding.is_some() || volume.encrypts) && flags::changes_names(&dir.rights())
    }

    /// Returns the error that aborted the journal since the mount, if there was one.
    pub fn failure(&self) -> Option<Error> {
        self.objects.journal.cause().map(Error::from)
    }

    /// Returns the superblock as the last commit left it.
    pub fn superblock(&self) -> Superblock {
        self.objects.superblock.snapshot()
    }

    /// Returns the journal's statistics since the mount.
    pub fn journal_statistics(&self) -> lanefs_journal::Statistics {
        self.objects.journal.statistics()
    }

    /// Returns the numbers of inodes, metadata blocks and inode-table blocks in memory.
    pub fn cached(&self) -> (usize, usize, usize) {
        self.objects.cached()
    }

    pub(crate) fn data<'m>(&'m self, inode: &'m Arc<Inode>) -> FileData<'m> {
        FileData { objects: &self.objects, inode }
    }
}
