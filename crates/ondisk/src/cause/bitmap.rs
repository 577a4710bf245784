use thiserror::Error;

/// The possible faults of a bitmap.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
    #[error("the file system has no such group")]
    NoSuchGroup,
    #[error("{len} bytes are not a bitmap")]
    Length { len: usize },
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
    #[error("{clear} bits are clear where the descriptor has {free} free")]
    FreeCount { clear: u32, free: u32 },
    #[error("bit {bit}, which is metadata, is clear")]
    MetadataClear { bit: u32 },
    #[error("bit {bit}, which is metadata, was to be cleared")]
    MetadataFreed { bit: u32 },
    #[error("{len} bits from {start} reach beyond the end")]
    BeyondEnd { start: u32, len: u32 },
    #[error("inode {bit} of the group is in use, but its part of the table was never used")]
    NeverUsed { bit: u32 },
    #[error("bit {bit} to be set is set")]
    AlreadySet { bit: u32 },
    #[error("bit {bit} to be cleared is clear")]
    AlreadyClear { bit: u32 },
}
