//! The interface to the name cache of the upper layer: its keys and values, and what it is told.

use lanefs_lanes::NameKey;
use lanefs_ondisk::{FileType, Ino};

/// Identifies a directory, and distinguishes it from earlier directories with the same inode
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirId {
    /// The inode number.
    pub ino: Ino,
    /// The generation of the inode.
    pub generation: u32,
}

impl DirId {
    /// Returns a hash of `name` in this directory, for caches of names.
    #[inline]
    pub fn hash_of(self, name: &[u8], key: NameKey) -> u64 {
        self.join(key.hash(name), key)
    }

    /// Does the same as [`DirId::hash_of`] for a name whose hash is known ([`NameKey::hash`]).
    #[inline]
    pub fn join(self, name: u64, key: NameKey) -> u64 {
        key.join(name, u64::from(self.ino.0) << 32 | u64::from(self.generation))
    }
}

/// The inode that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The inode number.
    pub ino: Ino,
    /// The file type.
    pub file_type: FileType,
}

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
}

/// Implements [`Names`] without keeping any name.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn publish_read(&self, _: DirId, _: &[u8], _: Option<Named>, _: &dyn Fn() -> bool) {}
    fn forget(&self, _: DirId) {}
}
