use crate::types::Block;
use thiserror::Error;

/// The possible faults of a group descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
    #[error("the file system has no such group")]
    NoSuchGroup,
    #[error("{len} bytes are not a descriptor")]
    Length { len: usize },
    #[error("checksum is {found:#06x}, expected {expected:#06x}")]
    Checksum { found: u16, expected: u16 },
    #[error("block bitmap is {block}")]
    BlockBitmapPlace { block: Block },
    #[error("inode bitmap is {block}")]
    InodeBitmapPlace { block: Block },
    #[error("inode table starts at {block}")]
    InodeTablePlace { block: Block },
    #[error("bitmaps and inode table overlap")]
    Overlap,
    #[error("{blocks} free blocks")]
    FreeBlocks { blocks: u32 },
    #[error("{inodes} free inodes")]
    FreeInodes { inodes: u32 },
    #[error("{directories} directories")]
    UsedDirs { directories: u32 },
    #[error("{inodes} unused inodes at the end of the table")]
    ItableUnused { inodes: u32 },
}
