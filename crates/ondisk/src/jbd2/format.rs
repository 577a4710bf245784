//! The layout of the blocks of one log, which its features determine.

use super::header::{HEADER_SIZE, word_at};
use crate::cause::jbd2::Cause;
use crate::checksum::Seed;
use crate::types::BlockSize;

/// Offset of the records in a revoke block. The header and the word that counts the bytes in use
/// come before them.
pub(super) const RECORDS_OFFSET: usize = 16;

/// Bytes of a uuid after a tag.
pub(super) const UUID_SIZE: usize = 16;
const TAIL_SIZE: usize = 4;

/// The checksums of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogChecksums {
    /// No checksums.
    None,
    /// A crc32 over the whole transaction, in its commit block.
    Transaction,
    /// A crc32c of every log block, and 16 bits of a crc32c of every logged copy of a block.
    V2(Seed),
    /// A crc32c of every log block and of every logged copy of a block.
    V3(Seed),
}

impl LogChecksums {
    /// Returns the seed of the journal, if log blocks have checksums.
    pub(super) fn seed(self) -> Option<Seed> {
        match self {
            LogChecksums::V2(seed) | LogChecksums::V3(seed) => Some(seed),
            LogChecksums::None | LogChecksums::Transaction => None,
        }
    }
}

/// The length of block numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockNumbers {
    /// 32 bits, without the feature `64bit` of the journal.
    Bits32,
    /// 64 bits, with the feature `64bit` of the journal.
    Bits64,
}

/// The layout of the blocks of one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFormat {
    /// Size of log blocks.
    pub block_size: BlockSize,
    /// The checksums of the log.
    pub checksums: LogChecksums,
    /// The length of block numbers.
    pub numbers: BlockNumbers,
}

impl LogFormat {
    /// Returns the number of tags that fit into one descriptor.
    pub fn tags_per_descriptor(&self) -> usize {
        let room = self.block_size.bytes() - HEADER_SIZE - UUID_SIZE - self.tail_size();
        room / self.tag_size()
    }

    /// Returns the number of records that fit into one revoke block.
    pub fn revokes_per_block(&self) -> usize {
        let room = self.block_size.bytes() - RECORDS_OFFSET - self.tail_size();
        room / self.record_size()
    }

    /// Returns the size of a tag in bytes, without the uuid that may follow.
    pub(super) fn tag_size(&self) -> usize {
        match (self.checksums, self.numbers) {
            (LogChecksums::V3(_), _) => 16,
            // With v2 a tag has two bytes more than its fields need, because of a bug that became
            // part of the format.
            (LogChecksums::V2(_), BlockNumbers::Bits64) => 14,
            (LogChecksums::V2(_), BlockNumbers::Bits32) => 10,
            (_, BlockNumbers::Bits64) => 12,
            (_, BlockNumbers::Bits32) => 8,
        }
    }

    /// Returns the size of a revoke record in bytes.
    pub(super) fn record_size(&self) -> usize {
        match self.numbers {
            BlockNumbers::Bits32 => 4,
            BlockNumbers::Bits64 => 8,
        }
    }

    /// Returns how many bytes at the end of a descriptor or revoke block contain its checksum.
    pub(super) fn tail_size(&self) -> usize {
        if self.checksums.seed().is_some() { TAIL_SIZE } else { 0 }
    }

    /// Checks the length and the tail of a descriptor or revoke block.
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
