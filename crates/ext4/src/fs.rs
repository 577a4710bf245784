//! The mounted file system: its public interface.

use crate::*;
use lanefs_device::Device;
use lanefs_ondisk::Ino;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

/// A mounted file system and the thread that commits its transactions.
pub struct Mount {}

/// The operations of a mounted file system.
pub struct Fs {}

/// An inode in memory.
pub struct Inode {}

/// A hold on an inode: while it lives the inode stays in memory, and its blocks are not freed even
/// if its last name goes.
pub struct InodeRef {}

impl Deref for InodeRef {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        todo!()
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> InodeRef {
        todo!()
    }
}

impl Mount {
    /// Opens the file system on `device`: checks it, replays its log, finishes its orphans.
    pub fn open(_device: Arc<dyn Device>, _options: MountOptions) -> Result<Mount, Error> {
        todo!()
    }
    /// The operations.
    pub fn fs(&self) -> &Fs {
        todo!()
    }
    /// Commits, writes everything home, marks the file system clean. Dropping does the same, but
    /// has nobody to tell of an error.
    pub fn close(self) -> Result<(), Error> {
        todo!()
    }
}

impl Inode {
    /// The number.
    pub fn ino(&self) -> Ino {
        todo!()
    }
    /// Tells it from an earlier inode of the same number.
    pub fn generation(&self) -> u32 {
        todo!()
    }
    /// What stat(2) tells; takes no lock.
    pub fn attr(&self) -> Attr {
        todo!()
    }
}

#[allow(unused_variables, missing_docs)]
impl Fs {
    /// True if nothing can be changed: mounted so, or after an error.
    pub fn is_read_only(&self) -> bool {
        todo!()
    }
    pub fn root(&self) -> Result<InodeRef, Error> {
        todo!()
    }
    /// A hold on inode `ino`, read if need be. [`Error::Stale`] if it is free, or `generation` is given and another.
    pub fn get(&self, ino: Ino, generation: Option<u32>) -> Result<InodeRef, Error> {
        todo!()
    }
    /// Adds `n` holds without a guard object (look-ups that a FUSE kernel counts).
    pub fn hold(&self, inode: &InodeRef, n: u64) {
        todo!()
    }
    /// Takes `n` such holds away; the last one frees an inode without names.
    pub fn forget(&self, ino: Ino, n: u64) {
        todo!()
    }
    pub fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Named>, Error> {
        todo!()
    }
    /// Entries after `cookie` (0: from the start) in hash order, "." and ".." included.
    pub fn read_dir(
        &self,
        dir: &Inode,
        cookie: u64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        todo!()
    }
    pub fn create(&self, dir: &Inode, name: &[u8], new: &NewInode<'_>) -> Result<InodeRef, Error> {
        todo!()
    }
    /// An unnamed file (O_TMPFILE): an orphan until it is linked.
    pub fn create_unnamed(&self, dir: &Inode, new: &NewInode<'_>) -> Result<InodeRef, Error> {
        todo!()
    }
    pub fn link(&self, inode: &Inode, dir: &Inode, name: &[u8]) -> Result<(), Error> {
        todo!()
    }
    pub fn unlink(&self, dir: &Inode, name: &[u8]) -> Result<(), Error> {
        todo!()
    }
    pub fn rmdir(&self, dir: &Inode, name: &[u8]) -> Result<(), Error> {
        todo!()
    }
    pub fn rename(
        &self,
        from: &Inode,
        name: &[u8],
        to: &Inode,
        new_name: &[u8],
        how: Rename,
    ) -> Result<(), Error> {
        todo!()
    }
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>, Error> {
        todo!()
    }
    /// Bytes read; fewer than asked only at the end of the file.
    pub fn read_at(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        todo!()
    }
    /// Bytes written; fewer than given only if space ran out after some.
    pub fn write_at(&self, inode: &Inode, offset: u64, data: &[u8]) -> Result<usize, Error> {
        todo!()
    }
    /// As [`Fs::write_at`] at the end of the file as it is then; gives the offset too.
    pub fn append(&self, inode: &Inode, data: &[u8]) -> Result<(u64, usize), Error> {
        todo!()
    }
    /// As [`Fs::write_at`] for pages from a kernel's writeback cache: no times are set.
    pub fn write_back(&self, inode: &Inode, offset: u64, data: &[u8]) -> Result<usize, Error> {
        todo!()
    }
    pub fn set_attr(&self, inode: &Inode, set: &SetAttr) -> Result<Attr, Error> {
        todo!()
    }
    pub fn fallocate(
        &self,
        inode: &Inode,
        how: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        todo!()
    }
    pub fn seek(&self, inode: &Inode, what: Seek, offset: u64) -> Result<u64, Error> {
        todo!()
    }
    /// Records a read per the mount's atime option.
    pub fn touch_atime(&self, inode: &Inode) -> Result<(), Error> {
        todo!()
    }
    /// The value of extended attribute `name` (with its prefix, as `user.x`; ACLs in Linux's format).
    pub fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>, Error> {
        todo!()
    }
    pub fn set_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<(), Error> {
        todo!()
    }
    pub fn remove_xattr(&self, inode: &Inode, name: &[u8]) -> Result<(), Error> {
        todo!()
    }
    /// Full names.
    pub fn list_xattr(&self, inode: &Inode) -> Result<Vec<Vec<u8>>, Error> {
        todo!()
    }
    pub fn fsync(&self, inode: &Inode, mode: SyncMode) -> Result<(), Error> {
        todo!()
    }
    pub fn sync(&self) -> Result<(), Error> {
        todo!()
    }
    pub fn stat_fs(&self) -> StatFs {
        todo!()
    }
    /// Called when the last writer closes a file: gives back what was preallocated, and forces out
    /// the data of a file that replaced another by truncation.
    pub fn release(&self, inode: &Inode) {
        todo!()
    }
}
