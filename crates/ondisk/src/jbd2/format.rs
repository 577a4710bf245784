//! The layout of the blocks of one log, as its features determine it.

use super::{Cause, HEADER_SIZE, word_at};
use crate::BlockSize;
use crate::checksum::Seed;

/// Bytes of a uuid behind a tag.
pub(super) const UUID_SIZE: usize = 16;
const TAIL_SIZE: usize = 4;

/// The checksums of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogChecksums {
    /// Nothing.
    None,
    /// A crc32 over all of a transaction, in its commit block.
    Transaction,
    /// crc32c of every log block, and 16 bits of it for every copy.
    V2(Seed),
    /// crc32c of every log block and every copy.
    V3(Seed),
}

impl LogChecksums {
    /// The seed of the journal, where log blocks have checksums.
    pub(super) fn seed(self) -> Option<Seed> {
        match self {
            LogChecksums::V2(seed) | LogChecksums::V3(seed) => Some(seed),
            LogChecksums::None | LogChecksums::Transaction => None,
        }
    }
}

/// How long block numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockNumbers {
    /// Without the feature `64bit` of the journal.
    Bits32,
    /// With it.
    Bits64,
}

/// How the blocks of one log are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFormat {
    /// Size of log blocks.
    pub block_size: BlockSize,
    /// The checksums of the log.
    pub checksums: LogChecksums,
    /// How long block numbers are.
    pub numbers: BlockNumbers,
}

impl LogFormat {
    /// Tags that fit into one descriptor.
    pub fn tags_per_descriptor(&self) -> usize {
        let room = self.block_size.bytes() - HEADER_SIZE - UUID_SIZE - self.tail_size();
        room / self.tag_size()
    }

    /// Records that fit into one revoke block.
    pub fn revokes_per_block(&self) -> usize {
        let room = self.block_size.bytes() - super::revoke::RECORDS_OFFSET - self.tail_size();
        room / self.record_size()
    }

    /// Bytes of a tag, without the uuid that may follow.
    pub(super) fn tag_size(&self) -> usize {
        match (self.checksums, self.numbers) {
            (LogChecksums::V3(_), _) => 16,
            // With v2, two bytes more than its fields take: an error that became the format.
            (LogChecksums::V2(_), BlockNumbers::Bits64) => 14,
            (LogChecksums::V2(_), BlockNumbers::Bits32) => 10,
            (_, BlockNumbers::Bits64) => 12,
            (_, BlockNumbers::Bits32) => 8,
        }
    }

    /// Bytes of a revoke record.
    pub(super) fn record_size(&self) -> usize {
        match self.numbers {
            BlockNumbers::Bits32 => 4,
            BlockNumbers::Bits64 => 8,
        }
    }

    /// Bytes at the end of descriptors and revoke blocks that hold their checksum.
    pub(super) fn tail_size(&self) -> usize {
        if self.checksums.seed().is_some() { TAIL_SIZE } else { 0 }
    }

    /// Checks length and tail of a descriptor or revoke block.
    pub(super) fn check_block(&self, block: &[u8]) -> Result<(), Cause> {
        if block.len() != self.block_size.bytes() {
            return Err(Cause::Length { len: block.len() });
        }
        let Some(expected) = self.tail_checksum(block) else { return Ok(()) };
        let found = word_at(block, block.len() - TAIL_SIZE).unwrap_or_default();
        (found == expected).then_some(()).ok_or(Cause::Checksum { found, expected })
    }

    /// Sets the tail of a descriptor or revoke block.
    pub(super) fn seal_block(&self, block: &mut [u8]) {
        if let Some(sum) = self.tail_checksum(block) {
            let tail = block.len() - TAIL_SIZE;
            block[tail..].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn tail_checksum(&self, block: &[u8]) -> Option<u32> {
        let body = block.get(..block.len().checked_sub(TAIL_SIZE)?)?;
        Some(self.checksums.seed()?.chain(body).chain(&[0; TAIL_SIZE]).value())
    }
}
