//! The jbd2 log: superblock, descriptors, tags, commit and revoke blocks. Everything is big endian.
//!
//! A log block is recognised by its [`Header`]; all others are copies of file system blocks, in the
//! order of the tags of the descriptor before them. Functions here return a bare [`Cause`], since
//! only the caller knows which log block it read (see [`crate::Corruption::Journal`]).
//!
//! Source: ext4 disk layout documentation, "Journal (jbd2)".

mod commit;
mod descriptor;
mod fast_commit;
mod format;
mod revoke;
mod superblock;

pub use commit::{Commit, TransactionChecksum};
pub use descriptor::{
    Image, Tag, TagFlags, Tags, encode_descriptor, escape, needs_escape, unescape,
};
pub use fast_commit::fast_commit_head;
pub use format::{BlockNumbers, LogChecksums, LogFormat};
pub use revoke::{Revokes, encode_revoke};
pub use superblock::{JournalCompat, JournalIncompat, JournalSuperblock, JournalVersion};

use std::fmt;
use thiserror::Error;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first word of every block that belongs to the log itself.
pub const MAGIC: u32 = 0xc03b_3998;

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
    #[error("checksum is {found:#010x} where {expected:#010x} is right")]
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
}

/// The number of a transaction in the log. The number wraps, so only numbers close to each other
/// can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sequence(pub u32);

impl Sequence {
    /// Returns the number of the next transaction.
    pub fn next(self) -> Sequence {
        Sequence(self.0.wrapping_add(1))
    }

    /// Returns whether this transaction came before `other`: the difference is less than half of
    /// all numbers.
    pub fn is_before(self, other: Sequence) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.0)
    }
}

/// The kind of a block of the log itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Lists the blocks whose copies follow it.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// The superblock of an old journal, without features.
    SuperblockV1,
    /// The superblock.
    SuperblockV2,
    /// Lists blocks whose earlier copies must not be replayed.
    Revoke,
}

impl BlockKind {
    fn from_number(number: u32) -> Option<BlockKind> {
        Some(match number {
            1 => BlockKind::Descriptor,
            2 => BlockKind::Commit,
            3 => BlockKind::SuperblockV1,
            4 => BlockKind::SuperblockV2,
            5 => BlockKind::Revoke,
            _ => return None,
        })
    }

    fn number(self) -> u32 {
        match self {
            BlockKind::Descriptor => 1,
            BlockKind::Commit => 2,
            BlockKind::SuperblockV1 => 3,
            BlockKind::SuperblockV2 => 4,
            BlockKind::Revoke => 5,
        }
    }
}

#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    h_magic: U32,
    h_blocktype: U32,
    h_sequence: U32,
}

/// Bytes of a header.
const HEADER_SIZE: usize = 12;
const _: () = assert!(size_of::<RawHeader>() == HEADER_SIZE);

/// The header of a block of the log itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the block.
    pub kind: BlockKind,
    /// The number of the block's transaction; meaningless in a superblock.
    pub sequence: Sequence,
}

impl Header {
    /// Decodes the header of a log block; `None` for another block, which marks the end of the log.
    pub fn decode(block: &[u8]) -> Option<Header> {
        let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
        if raw.h_magic.get() != MAGIC {
            return None;
        }
        let kind = BlockKind::from_number(raw.h_blocktype.get())?;
        Some(Header { kind, sequence: Sequence(raw.h_sequence.get()) })
    }

    fn encode_into(self, block: &mut [u8]) {
        let raw = RawHeader {
            h_magic: MAGIC.into(),
            h_blocktype: self.kind.number().into(),
            h_sequence: self.sequence.0.into(),
        };
        block[..HEADER_SIZE].copy_from_slice(raw.as_bytes());
    }

    /// Decodes the header; fails if it is not of `kind`.
    fn expect(block: &[u8], kind: BlockKind) -> Result<Header, Cause> {
        let header = Header::decode(block).filter(|header| header.kind == kind);
        header.ok_or(Cause::WrongKind { expected: kind })
    }
}

fn word_at(block: &[u8], at: usize) -> Option<u32> {
    let bytes = block.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests;
