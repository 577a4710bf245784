//! The keys and values of name caches.

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
