//! The shape of a hash tree: its levels, and where each block is.
//!
//! Level 0 is the data. Each block of a higher level has the hashes of blocks of the level below,
//! and the highest level has one block. A file of one block, or an empty file, has no tree. The
//! blocks of the tree are stored level by level, the highest first.

use super::method::Method;
use crate::cause::verity::Cause;

/// The largest number of levels above the data, as in the kernel.
const MOST_LEVELS: usize = 8;

/// The shape of a hash tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    block_bits: u8,
    hash_bits: u8,
    data_blocks: u64,
    /// The first block of each level, from level 1 on, counted in the stored tree.
    starts: Vec<u64>,
    blocks: u64,
}

/// The position of a block's hash in the level above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Child {
    /// The number of the block that has the hash, counted within its level.
    pub parent: u64,
    /// The number of the block that has the hash, counted in the stored tree.
    pub stored: u64,
    /// The offset of the hash in bytes, within the block that has the hash.
    pub offset: usize,
}

impl Tree {
    /// Returns the shape of the tree for `size` bytes.
    ///
    /// # Errors
    /// [`Cause::Levels`].
    pub fn new(size: u64, method: &Method) -> Result<Tree, Cause> {
        let hash_bits = method.algorithm().hash_bytes().trailing_zeros() as u8;
        let (block_bits, fan_bits) = (method.block_bits(), method.block_bits() - hash_bits);
        let data_blocks = size.div_ceil(1 << block_bits);
        let mut counts = Vec::new();
        let mut below = data_blocks;
        while below > 1 {
            if counts.len() == MOST_LEVELS {
                return Err(Cause::Levels);
            }
            below = below.div_ceil(1 << fan_bits);
            counts.push(below);
        }
        let blocks = counts.iter().sum();
        let mut end = blocks;
        let starts = counts.iter().map(|count| {
            end -= count;
            end
        });
        Ok(Tree { block_bits, hash_bits, data_blocks, starts: starts.collect(), blocks })
    }

    /// Returns the size of a block in bytes. The blocks of the data and of the tree have the same
    /// size.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_bits
    }

    /// Returns the number of the data block that has byte `offset` of the file.
    pub fn block_at(&self, offset: u64) -> u64 {
        offset >> self.block_bits
    }

    /// Returns the number of levels above the data.
    pub fn levels(&self) -> usize {
        self.starts.len()
    }

    /// Returns the number of blocks in a level.
    pub fn blocks_in(&self, level: usize) -> u64 {
        let Some(above) = level.checked_sub(1) else { return self.data_blocks };
        let Some(start) = self.starts.get(above) else { return 0 };
        // In the stored tree, the blocks of the level below follow those of this level.
        let next = above.checked_sub(1).and_then(|below| self.starts.get(below));
        next.unwrap_or(&self.blocks) - start
    }

    /// Returns the size of the stored tree in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_bits
    }

    /// Returns where the hash of block `index` of `level` is; `None` for the highest block, whose
    /// hash is in the descriptor.
    pub fn child(&self, level: usize, index: u64) -> Option<Child> {
        let start = self.starts.get(level)?;
        let fan_bits = self.block_bits - self.hash_bits;
        let parent = index >> fan_bits;
        let within = index & ((1 << fan_bits) - 1);
        let offset = (within << self.hash_bits) as usize;
        Some(Child { parent, stored: start + parent, offset })
    }

    /// Returns the offset of a block of the stored tree from the start of the tree, in bytes.
    pub fn offset_of(&self, stored: u64) -> u64 {
        stored << self.block_bits
    }
}
