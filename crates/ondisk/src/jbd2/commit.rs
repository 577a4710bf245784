//! Commit blocks. A transaction is valid only if the log has its commit block.

use super::format::{LogChecksums, LogFormat};
use super::header::{Header, Sequence, word_at};
use super::kind::BlockKind;
use crate::cause::jbd2::Cause;
use crc::{Crc, Digest, Table};

const CHECKSUM_TYPE_OFFSET: usize = 0x0c;
const CHECKSUM_SIZE_OFFSET: usize = 0x0d;
const CHECKSUM_OFFSET: usize = 0x10;
const SECS_OFFSET: usize = 0x30;
const NANOS_OFFSET: usize = 0x38;
const COMMIT_SIZE: usize = 0x3c;

/// `JBD2_CRC32_CHKSUM` and its size, for a commit block that contains a transaction's checksum.
const CRC32_TYPE: u8 = 1;
const CRC32_SIZE: u8 = 4;

static CRC32_BE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&crc::CRC_32_MPEG_2);

/// A commit block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// The number of the transaction.
    pub sequence: Sequence,
    /// The time in seconds since 1970. Within a log the time never decreases. So a time before that
    /// of the previous transaction shows that the block is left over from an earlier lap of the
    /// log.
    pub secs: u64,
    /// The nanoseconds of the time.
    pub nanos: u32,
    /// With [`LogChecksums::Transaction`], the checksum of descriptors and copies, if the writer
    /// stored one.
    pub transaction: Option<u32>,
}

impl Commit {
    /// Checks kind, length and checksum of a commit block. The checksum of a whole transaction is
    /// left to the caller, because only the caller has the transaction's blocks: see
    /// [`TransactionChecksum`].
    ///
    /// # Errors
    /// [`Cause::WrongKind`], [`Cause::Length`] or [`Cause::Checksum`].
    pub fn decode(block: &[u8], format: &LogFormat) -> Result<Commit, Cause> {
        let header = Header::expect(block, BlockKind::Commit)?;
        if block.len() != format.block_size.bytes() {
            return Err(Cause::Length { len: block.len() });
        }
        let word = |at| word_at(block, at).unwrap_or_default();
        let found = word(CHECKSUM_OFFSET);
        if let Some(expected) = checksum(block, format).filter(|&expected| expected != found) {
            return Err(Cause::Checksum { found, expected });
        }
        let kind = (block[CHECKSUM_TYPE_OFFSET], block[CHECKSUM_SIZE_OFFSET]);
        let has_one =
            format.checksums == LogChecksums::Transaction && !(kind == (0, 0) && found == 0);
        Ok(Commit {
            sequence: header.sequence,
            secs: u64::from(word(SECS_OFFSET)) << 32 | u64::from(word(SECS_OFFSET + 4)),
            nanos: word(NANOS_OFFSET),
            transaction: has_one.then_some(found),
        })
    }

    /// Returns the bytes of the block.
    pub fn encode(&self, format: &LogFormat) -> Vec<u8> {
        let mut block = vec![0; format.block_size.bytes()];
        Header { kind: BlockKind::Commit, sequence: self.sequence }.encode_into(&mut block);
        block[SECS_OFFSET..SECS_OFFSET + 8].copy_from_slice(&self.secs.to_be_bytes());
        block[NANOS_OFFSET..COMMIT_SIZE].copy_from_slice(&self.nanos.to_be_bytes());
        let sum = match (format.checksums, self.transaction) {
            (LogChecksums::Transaction, Some(sum)) => {
                block[CHECKSUM_TYPE_OFFSET] = CRC32_TYPE;
                block[CHECKSUM_SIZE_OFFSET] = CRC32_SIZE;
                Some(sum)
            }
            _ => checksum(&block, format),
        };
        if let Some(sum) = sum {
            block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&sum.to_be_bytes());
        }
        block
    }
}

/// Computes the checksum over the whole block, with the first word of its checksum field taken as
/// zero.
fn checksum(block: &[u8], format: &LogFormat) -> Option<u32> {
    let seed = format.checksums.seed()?;
    let (before, after) = (block.get(..CHECKSUM_OFFSET)?, block.get(CHECKSUM_OFFSET + 4..)?);
    Some(seed.chain(before).chain(&[0; 4]).chain(after).value())
}

/// The running checksum of [`LogChecksums::Transaction`]: big-endian crc32 without final inversion,
/// over each descriptor and the copies after it, in the order of the log.
pub struct TransactionChecksum(Digest<'static, u32, Table<16>>);

impl TransactionChecksum {
    /// Creates a checksum of no blocks.
    pub fn new() -> TransactionChecksum {
        TransactionChecksum(CRC32_BE.digest())
    }

    /// Adds a log block.
    pub fn add(&mut self, block: &[u8]) {
        self.0.update(block);
    }

    /// Returns the checksum of all added blocks.
    pub fn value(&self) -> u32 {
        self.0.clone().finalize()
    }
}

impl Default for TransactionChecksum {
    fn default() -> TransactionChecksum {
        TransactionChecksum::new()
    }
}
