//! What a name cache knows of a name.

use lanefs_ext4::Named;

/// The cache's answer for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It leads to this inode.
    Entry(Named),
    /// There is no such name.
    Absent,
    /// Not in the cache: the directory has to be read.
    Unknown,
}

impl From<Option<Named>> for Known {
    fn from(entry: Option<Named>) -> Known {
        entry.map_or(Known::Absent, Known::Entry)
    }
}
