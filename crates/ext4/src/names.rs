//! The keys and values of name caches.

use lanefs_ondisk::{FileType, Ino};

/// Identifies a directory, and distinguishes it from earlier directories with the same number.
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
    pub fn hash_of(self, name: &[u8]) -> u64 {
        let dir = u64::from(self.ino.0) << 32 | u64::from(self.generation);
        lanefs_lanes::hash_of_bytes(dir, name)
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
