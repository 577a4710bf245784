//! Indirect block maps: the mapping of ext2 and ext3, and of old files on ext4.
//!
//! `i_block` in the inode contains 15 pointers of 32 bits: twelve to data blocks, then one each to
//! a single, double and triple indirect block. An indirect block, also called a node here, is an
//! array of pointers and nothing else: it has no header and no checksum, even with `metadata_csum`.
//! A pointer of 0 is a hole. Format: <https://docs.kernel.org/filesystems/ext4/>, "The Contents of
//! inode.i_block", "Direct/Indirect Block Addressing".
//!
//! *Invariants* of decoded [`Pointers`]: each pointer is 0 or a block that files may use, and no
//! pointer maps file block [`END`] or a later one.

pub use crate::cause::BlockMapCause as Cause;

use crate::extent::{END, ROOT_BYTES};
use crate::types::{Block, BlockSize, FileBlock};
use std::ops::Range;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// Number of pointers in the inode.
pub const ROOT_POINTERS: usize = ROOT_BYTES / POINTER;
/// Number of pointers in the inode that refer to data blocks.
pub const DIRECT: usize = 12;
/// The largest depth of a pointer. The depth is the number of levels of nodes below the pointer: 3
/// for the last pointer in the inode.
pub const MAX_DEPTH: u16 = (ROOT_POINTERS - DIRECT) as u16;
/// The first block number that a pointer cannot express.
pub const BLOCKS_END: u64 = 1 << 32;

const POINTER: usize = size_of::<U32>();

/// The file blocks that a pointer maps. Some of them may lie beyond the last block that a file can
/// reach.
pub type Span = Range<u64>;

/// Returns the number of pointers in an indirect block.
pub fn fanout(block_size: BlockSize) -> usize {
    block_size.bytes() / POINTER
}

/// Returns the number of file blocks that a pointer with `depth` levels of nodes below it maps.
pub fn reach(block_size: BlockSize, depth: u16) -> u64 {
    // This is at most (2^14)^3: a block has at most 2^14 pointers, and a map at most three levels.
    (fanout(block_size) as u64).pow(depth.into())
}

/// Returns the depth of pointer `index` in the inode, and the first file block that it maps.
pub fn root_place(block_size: BlockSize, index: usize) -> (u16, u64) {
    let depth = index.saturating_sub(DIRECT - 1) as u16;
    let before = |depth: u16| (1..depth).map(|below| reach(block_size, below)).sum::<u64>();
    match depth {
        0 => (0, index as u64),
        depth => (depth, DIRECT as u64 + before(depth)),
    }
}

/// Returns the number of file blocks that a block map can reach. No file with a block map has more.
pub fn mappable(block_size: BlockSize) -> u64 {
    let (depth, start) = root_place(block_size, ROOT_POINTERS - 1);
    (start + reach(block_size, depth)).min(END.into())
}

/// Returns the largest size in bytes of a file with a block map, if at most `counted` blocks can be
/// allocated for its data and its map.
///
/// The value is that of Linux 6.18, observed with truncate(1) for blocks of 1, 2 and 4 KiB, with
/// and without `huge_file`. The kernel subtracts from `counted` the number of nodes that `counted`
/// data blocks would need.
pub fn max_file_size(block_size: BlockSize, counted: u64) -> u64 {
    let data = counted.saturating_sub(nodes_for(block_size, counted));
    mappable(block_size).min(data) << block_size.bits()
}

/// Returns the number of nodes that map the first `blocks` blocks of a file.
fn nodes_for(block_size: BlockSize, blocks: u64) -> u64 {
    (DIRECT..ROOT_POINTERS)
        .map(|index| {
            let (depth, start) = root_place(block_size, index);
            let mapped = blocks.saturating_sub(start).min(reach(block_size, depth));
            (1..=depth).map(|level| mapped.div_ceil(reach(block_size, level))).sum::<u64>()
        })
        .sum()
}

/// The properties that a node must have because of its position in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The first file block that the node maps.
    pub start: u64,
    /// The number of levels of nodes below the node's pointers: 0 if they refer to data blocks.
    pub depth: u16,
    /// The physical blocks that files may use.
    pub space: Range<u64>,
}

/// The checked pointers of an inode or of an indirect block; `None` is a hole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointers(pub Vec<Option<Block>>);

impl Pointers {
    /// Decodes the pointers in an inode.
    ///
    /// # Errors
    /// Any [`Cause`] except [`Cause::Twice`], which cannot be detected in a single node.
    pub fn decode_root(
        bytes: &[u8; ROOT_BYTES],
        block_size: BlockSize,
        space: &Range<u64>,
    ) -> Result<Pointers, Cause> {
        let place = |index| root_place(block_size, index).1;
        decode(bytes, space, place)
    }

    /// Decodes an indirect block.
    ///
    /// # Errors
    /// As for [`Pointers::decode_root`].
    pub fn decode(
        bytes: &[u8],
        block_size: BlockSize,
        expected: &Expected,
    ) -> Result<Pointers, Cause> {
        if bytes.len() != block_size.bytes() {
            return Err(Cause::Length { len: bytes.len() });
        }
        let each = reach(block_size, expected.depth);
        decode(bytes, &expected.space, |index| expected.start + index as u64 * each)
    }

    /// Writes the pointers over `bytes`, which must be exactly as long as the pointers.
    ///
    /// # Panics
    /// If `bytes` has another length, or a block number has more than 32 bits. Both are errors of
    /// this program, never of the image.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.0.len() * POINTER, "the pointers fill the node");
        for (slot, pointer) in bytes.chunks_exact_mut(POINTER).zip(&self.0) {
            let block = pointer.map_or(0, |block| block.0);
            assert!(block < BLOCKS_END, "block {block} has more than 32 bits");
            slot.copy_from_slice(&(block as u32).to_le_bytes());
        }
    }
}

/// Decodes pointers; `start_of` returns the first file block of a pointer.
fn decode(
    bytes: &[u8],
    space: &Range<u64>,
    start_of: impl Fn(usize) -> u64,
) -> Result<Pointers, Cause> {
    let raw = <[U32]>::ref_from_bytes(bytes).map_err(|_| Cause::Length { len: bytes.len() })?;
    let checked = raw.iter().enumerate().map(|(index, pointer)| {
        let block = Block(pointer.get().into());
        if block.0 == 0 {
            return Ok(None);
        }
        let start = start_of(index);
        let within = u32::try_from(start).ok().filter(|start| *start < END);
        let start = FileBlock(within.ok_or(Cause::Range { start })?);
        match space.contains(&block.0) {
            true => Ok(Some(block)),
            false => Err(Cause::Target { start, block }),
        }
    });
    Ok(Pointers(checked.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests;
