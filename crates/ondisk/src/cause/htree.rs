use crate::types::FileBlock;
use thiserror::Error;

/// The possible faults of an index block, or of the block that it points to.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found and expected
pub enum Cause {
    #[error("{found} bytes, expected a block of {expected}")]
    Length { expected: usize, found: usize },
    #[error("not the root of an index")]
    NotRoot,
    #[error("not a node of an index")]
    NotNode,
    #[error("unknown hash version {found}")]
    HashVersion { found: u8 },
    #[error("root information of {found} bytes, not 8")]
    InfoLength { found: u8 },
    #[error("{found} levels below the root, {allowed} allowed")]
    Levels { found: u8, allowed: u8 },
    #[error("unknown flags {found:#x}")]
    Flags { found: u8 },
    #[error("room for {found} entries, not {expected}")]
    Limit { expected: usize, found: usize },
    #[error("{count} entries where 1 to {limit} fit")]
    Count { count: usize, limit: usize },
    #[error("checksum is {found:#010x}, expected {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("entry {entry} leads to {child}, of {blocks} blocks")]
    Child { entry: usize, child: FileBlock, blocks: u32 },
    #[error("entry {entry} has a lower hash than the one before")]
    Order { entry: usize },
    #[error("leads to more leaves than the directory has blocks")]
    TooManyLeaves,
    #[error("the name at {offset} of {leaf} has hash {hash:#x}, outside that leaf's range")]
    HashRange { leaf: FileBlock, offset: usize, hash: u32 },
}
