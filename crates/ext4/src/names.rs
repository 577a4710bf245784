//! What names are kept by, and what they lead to.

use lanefs_ondisk::{FileType, Ino};

/// Tells a directory from any other, also from an earlier one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirId {
    /// The inode number.
    pub ino: Ino,
    /// Its generation.
    pub generation: u32,
}

impl DirId {
    /// A hash of `name` in this directory, for caches of names.
    #[inline]
    pub fn hash_of(self, name: &[u8]) -> u64 {
        // One word, and a name that brings its length along by itself.
        struct Key<'a>(u64, &'a [u8]);
        impl std::hash::Hash for Key<'_> {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                state.write_u64(self.0);
                state.write(self.1);
            }
        }
        lanefs_lanes::hash_of(&Key(u64::from(self.ino.0) << 32 | u64::from(self.generation), name))
    }
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The inode.
    pub ino: Ino,
    /// Its type.
    pub file_type: FileType,
}
