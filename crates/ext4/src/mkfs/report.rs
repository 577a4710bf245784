//! The properties of a new file system.

use super::FileFault;

/// Describes the new file system.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of block groups.
    pub groups: u32,
    /// Number of inodes.
    pub inodes: u32,
    /// Blocks of the journal; 0 if there is none.
    pub journal_blocks: u32,
    /// Blocks that only root may take.
    pub reserved_blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// The features, by the names that `dumpe2fs` prints.
    pub features: Vec<String>,
    /// Files of the tree with a property that was left out, as [`super::OnLoss::Report`] allows.
    pub losses: Vec<(usize, FileFault)>,
}
