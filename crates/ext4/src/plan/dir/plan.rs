//! The planned changes of a directory.

use super::{DirBlocks, DirContext};
use crate::error::Error;
use lanefs_ondisk::{FileBlock, htree};
use std::sync::Arc;

/// The largest number of blocks that one [`Plan`] updates: a leaf and three levels of index.
pub const MOST_UPDATED: usize = 4;
/// The largest number of blocks that one [`Plan`] appends: a leaf, and a node for each level.
pub const MOST_APPENDED: usize = 4;

/// The changes of a directory.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// New contents of existing blocks; each block at most once.
    pub updates: Vec<(FileBlock, Arc<[u8]>)>,
    /// Blocks to append, in this order: the first becomes block [`DirBlocks::count`].
    pub appended: Vec<Arc<[u8]>>,
    /// Whether the directory's inode gets the index flag (`EXT4_INDEX_FL`).
    pub becomes_indexed: bool,
}

impl Plan {
    /// Creates a plan that changes one block.
    pub(super) fn update(n: FileBlock, block: Arc<[u8]>) -> Plan {
        Plan { updates: vec![(n, block)], ..Plan::default() }
    }
}

/// Blocks to append. Their numbers follow those of the existing blocks.
pub(super) struct Growth {
    count: u32,
    most: u32,
    appended: Vec<Arc<[u8]>>,
}

impl Growth {
    /// Creates an empty list for the directory of `blocks`. Two limits apply to the number of
    /// blocks: without `large_dir` the size of a directory is a 32-bit number, and in every case an
    /// index entry has 28 bits for a block number.
    pub(super) fn new(cx: &DirContext, blocks: &dyn DirBlocks) -> Growth {
        let most = match cx.format.has_large_dirs {
            true => htree::MAX_CHILD.0,
            false => u32::MAX >> cx.format.block_size.bits(),
        };
        Growth { count: blocks.count(), most: most.min(htree::MAX_CHILD.0), appended: Vec::new() }
    }

    /// Appends a block and returns its number.
    pub(super) fn push(&mut self, block: Vec<u8>) -> Result<FileBlock, Error> {
        let n = self.next()?;
        self.appended.push(block.into());
        Ok(n)
    }

    /// Returns the number of the next block.
    pub(super) fn next(&self) -> Result<FileBlock, Error> {
        let appended = u32::try_from(self.appended.len()).unwrap_or(u32::MAX);
        match self.count.checked_add(appended) {
            Some(n) if n < self.most => Ok(FileBlock(n)),
            _ => Err(Error::NoSpace),
        }
    }

    pub(super) fn into_appended(self) -> Vec<Arc<[u8]>> {
        self.appended
    }
}
