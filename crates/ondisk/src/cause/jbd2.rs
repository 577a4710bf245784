use crate::jbd2::BlockKind;
use thiserror::Error;

/// The possible faults of a log block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum Cause {
    #[error("{len} bytes are too few")]
    Length { len: usize },
    #[error("not a journal superblock")]
    NotASuperblock,
    #[error("not a {expected:?} block")]
    WrongKind { expected: BlockKind },
    #[error("checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum { found: u32, expected: u32 },
    #[error("checksum type is {found}")]
    ChecksumType { found: u8 },
    #[error("more than one kind of checksum")]
    ChecksumKinds,
    #[error("block size is {found}")]
    BlockSize { found: u32 },
    #[error("{blocks} blocks long, in a file of {file_blocks}")]
    BeyondFile { blocks: u32, file_blocks: u32 },
    #[error("{blocks} blocks are too few for a log")]
    TooShort { blocks: u32 },
    #[error("first log block is {first}")]
    First { first: u32 },
    #[error("log starts at {start}")]
    Start { start: u32 },
    #[error("{count} bytes of revoke records")]
    RevokeCount { count: u32 },
    #[error("fast commit record at byte {offset}: unknown tag {tag}")]
    FastTag { offset: usize, tag: u16 },
    #[error("fast commit record at byte {offset}: {len} bytes for the tag {tag}")]
    FastLength { offset: usize, tag: u16, len: usize },
    #[error("fast commit record at byte {offset}: a name that no file can have")]
    FastName { offset: usize },
    #[error("fast commit record at byte {offset}: a range of no blocks")]
    FastRange { offset: usize },
}
