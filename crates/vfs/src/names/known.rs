//! The results of a look-up in a name cache.

use lanefs_ext4::Named;

/// The result for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// The name refers to this inode.
    Entry(Named),
    /// The name does not exist.
    Absent,
    /// The name is not in the cache: the directory has to be read.
    Unknown,
}

impl From<Option<Named>> for Known {
    fn from(entry: Option<Named>) -> Known {
        entry.map_or(Known::Absent, Known::Entry)
    }
}
