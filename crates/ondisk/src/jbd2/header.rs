//! The headers of log blocks, and the numbers of transactions.

use super::kind::BlockKind;
use crate::cause::jbd2::Cause;
use std::fmt;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first word of every block that belongs to the log itself.
pub const MAGIC: u32 = 0xc03b_3998;

/// The number of a transaction in the log. The number wraps, so only numbers close to each other
/// can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sequence(pub u32);

impl Sequence {
    /// Returns the number of the next transaction.
    pub fn next(self) -> Sequence {
        Sequence(self.0.wrapping_add(1))
    }

    /// Returns whether this transaction came before `other`, given that their distance is less than
    /// half of the number range.
    pub fn is_before(self, other: Sequence) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Returns the later of the two transactions; see [`Sequence::is_before`].
    pub fn latest(self, other: Sequence) -> Sequence {
        if self.is_before(other) { other } else { self }
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.0)
    }
}

#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawHeader {
    pub(super) h_magic: U32,
    pub(super) h_blocktype: U32,
    pub(super) h_sequence: U32,
}

/// Bytes of a header.
pub(super) const HEADER_SIZE: usize = 12;
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
    /// Decodes the header at the start of `block`. Returns `None` if there is no valid header.
    /// Where recovery expects a header, a block without one marks the end of the log.
    pub fn decode(block: &[u8]) -> Option<Header> {
        let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
        if raw.h_magic.get() != MAGIC {
            return None;
        }
        let kind = BlockKind::from_number(raw.h_blocktype.get())?;
        Some(Header { kind, sequence: Sequence(raw.h_sequence.get()) })
    }

    /// Returns the number of the transaction to which `block` belongs. Returns `None` if the block
    /// has no valid header, or is a journal superblock.
    pub fn number(block: &[u8]) -> Option<Sequence> {
        let is_superblock =
            |kind| matches!(kind, BlockKind::SuperblockV1 | BlockKind::SuperblockV2);
        Header::decode(block).filter(|h| !is_superblock(h.kind)).map(|h| h.sequence)
    }

    pub(super) fn encode_into(self, block: &mut [u8]) {
        let raw = RawHeader {
            h_magic: MAGIC.into(),
            h_blocktype: self.kind.number().into(),
            h_sequence: self.sequence.0.into(),
        };
        block[..HEADER_SIZE].copy_from_slice(raw.as_bytes());
    }

    /// Decodes the header of a log block; fails if the block is not of `kind`.
    pub(super) fn expect(block: &[u8], kind: BlockKind) -> Result<Header, Cause> {
        let header = Header::decode(block).filter(|header| header.kind == kind);
        header.ok_or(Cause::WrongKind { expected: kind })
    }
}

pub(super) fn word_at(block: &[u8], at: usize) -> Option<u32> {
    let bytes = block.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}
