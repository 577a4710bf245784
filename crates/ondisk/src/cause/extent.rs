use crate::types::{Block, FileBlock};
use thiserror::Error;

/// The possible faults of a node of an extent tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values, under the format's names
pub enum Cause {
    #[error("{len} bytes are too short for a node")]
    Short { len: usize },
    #[error("magic {magic:#06x}")]
    Magic { magic: u16 },
    #[error("depth is {depth}, expected {expected}")]
    Depth { depth: u16, expected: u16 },
    #[error("depth {depth} is more than {max}")]
    TooDeep { depth: u16, max: u16 },
    #[error("room for {max} entries where {fits} fit")]
    Max { max: u16, fits: u16 },
    #[error("{entries} entries with room for {max}")]
    Entries { entries: u16, max: u16 },
    #[error("an index node without entries")]
    EmptyIndex,
    #[error("starts with {start} where its parent says {expected}")]
    FirstEntry { start: FileBlock, expected: FileBlock },
    #[error("an extent of length 0 at {start}")]
    EmptyExtent { start: FileBlock },
    #[error("the entry at {start} is not after the one before")]
    Order { start: FileBlock },
    #[error("the entry at {start} is outside of the node's range, which ends at {to}")]
    Range { start: FileBlock, to: FileBlock },
    #[error("the entry at {start} points to {len} blocks from {block}, outside of the file system")]
    Target { start: FileBlock, block: Block, len: u32 },
    /// With `bigalloc`, a block must have the same offset in its logical cluster as in its physical
    /// cluster.
    #[error("the extent at {start} is at {block}, with another offset in its cluster")]
    Cluster { start: FileBlock, block: Block },
    #[error("checksum is {found:#010x}, expected {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
}
