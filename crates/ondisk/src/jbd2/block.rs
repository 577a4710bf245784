//! The layout of a log, and the kinds of its blocks.

use crate::cause::Jbd2Cause as Cause;
use crate::checksum::Seed;
use crate::types::{Block, BlockKind, BlockSize};
use bitflags::bitflags;
use crc::{Crc, Digest, Table};
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
            h_blocktype: (self.kind as u32).into(),
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

/// Offset of the records in a revoke block. The header and the word that counts the bytes in use
/// come before them.
const RECORDS_OFFSET: usize = 16;

/// Bytes of a uuid after a tag.
const UUID_SIZE: usize = 16;
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
    fn tag_size(&self) -> usize {
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
    fn record_size(&self) -> usize {
        match self.numbers {
            BlockNumbers::Bits32 => 4,
            BlockNumbers::Bits64 => 8,
        }
    }

    /// Returns how many bytes at the end of a descriptor or revoke block contain its checksum.
    fn tail_size(&self) -> usize {
        if self.checksums.seed().is_some() { TAIL_SIZE } else { 0 }
    }

    /// Checks the length and the tail of a descriptor or revoke block.
    fn check_block(&self, block: &[u8]) -> Result<(), Cause> {
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

// Descriptors. A descriptor contains tags. Each tag has the number of a block; the copies of these
// blocks follow the descriptor.

bitflags! {
    /// Flags of a tag.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct TagFlags: u32 {
        /// The block starts with the magic number, which is replaced by zeros in the copy (see
        /// [`escape`]).
        const ESCAPE = 1;
        /// No uuid follows this tag.
        const SAME_UUID = 2;
        /// The block was deleted in this transaction; no known writer sets this.
        const DELETED = 4;
        /// The last tag of its descriptor.
        const LAST = 8;
        const _ = !0;
    }
}

/// The tag of one block of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The number of the block that was copied.
    pub block: Block,
    /// The flags of the tag.
    pub flags: TagFlags,
    /// Checksum of the copy, as far as the format stores it: 32 bits with v3, 16 with v2, otherwise
    /// 0.
    pub checksum: u32,
}

impl Tag {
    /// Checks the copy as it is in the log, that is, before [`unescape`].
    ///
    /// # Errors
    /// [`Cause::Checksum`].
    pub fn check(&self, copy: &[u8], sequence: Sequence, format: &LogFormat) -> Result<(), Cause> {
        let expected = copy_checksum(copy, sequence, format);
        let right = self.checksum == expected;
        right.then_some(()).ok_or(Cause::Checksum { found: self.checksum, expected })
    }
}

/// Computes the checksum over the transaction's number and the copy as it is in the log.
fn copy_checksum(copy: &[u8], sequence: Sequence, format: &LogFormat) -> u32 {
    let sum = |seed: Seed| seed.chain(&sequence.0.to_be_bytes()).chain(copy);
    match format.checksums {
        LogChecksums::V3(seed) => sum(seed).value(),
        LogChecksums::V2(seed) => sum(seed).value() & 0xffff,
        LogChecksums::None | LogChecksums::Transaction => 0,
    }
}

/// The tags of a descriptor, in order. The copy for the n-th tag is n log blocks after the
/// descriptor.
///
/// The iteration ends after the tag marked as the last, or where no further tag fits.
#[derive(Debug, Clone)]
pub struct Tags<'b> {
    rest: &'b [u8],
    format: LogFormat,
    ended: bool,
}

impl<'b> Tags<'b> {
    /// Checks kind and checksum of a descriptor.
    ///
    /// # Errors
    /// [`Cause::WrongKind`], [`Cause::Length`] or [`Cause::Checksum`].
    pub fn decode(block: &'b [u8], format: &LogFormat) -> Result<Tags<'b>, Cause> {
        Header::expect(block, BlockKind::Descriptor)?;
        format.check_block(block)?;
        let rest = block.get(HEADER_SIZE..block.len() - format.tail_size()).unwrap_or_default();
        Ok(Tags { rest, format: *format, ended: false })
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        if self.ended {
            return None;
        }
        let (bytes, rest) = self.rest.split_at_checked(self.format.tag_size())?;
        let tag = decode_tag(bytes, &self.format)?;
        self.rest = if tag.flags.contains(TagFlags::SAME_UUID) {
            rest
        } else {
            rest.get(UUID_SIZE..).unwrap_or_default()
        };
        self.ended = tag.flags.contains(TagFlags::LAST);
        Some(tag)
    }
}

fn decode_tag(bytes: &[u8], format: &LogFormat) -> Option<Tag> {
    let low = word_at(bytes, 0)?;
    let second = word_at(bytes, 4)?;
    let high = match format.numbers {
        BlockNumbers::Bits64 => word_at(bytes, 8)?,
        BlockNumbers::Bits32 => 0,
    };
    let checksum = match format.checksums {
        LogChecksums::V3(_) => word_at(bytes, 12)?,
        LogChecksums::V2(_) => second >> 16,
        LogChecksums::None | LogChecksums::Transaction => 0,
    };
    // Only the lower 16 bits are flags. A v3 tag has 32 bits for them, but debugfs does not write
    // the upper 16 bits.
    let flags = second & 0xffff;
    let block = Block(u64::from(high) << 32 | u64::from(low));
    Some(Tag { block, flags: TagFlags::from_bits_retain(flags), checksum })
}

/// A block of a transaction, to be written to the log.
#[derive(Debug, Clone, Copy)]
pub struct Image<'b> {
    /// The number of the block that is copied.
    pub block: Block,
    /// The block's copy in the log: escaped if necessary.
    pub copy: &'b [u8],
    /// [`TagFlags::ESCAPE`] or empty; the encoder sets the other flags.
    pub flags: TagFlags,
}

/// Encodes a descriptor for `images`, which must follow the descriptor in the log, in the same
/// order.
///
/// # Panics
/// If `images` is empty or longer than [`LogFormat::tags_per_descriptor`], or if a block number
/// needs more than 32 bits and the format has only 32. Each of these is an error of the caller.
pub fn encode_descriptor(
    images: &[Image<'_>],
    sequence: Sequence,
    uuid: &[u8; 16],
    format: &LogFormat,
) -> Vec<u8> {
    assert!(!images.is_empty(), "a descriptor names a block");
    assert!(images.len() <= format.tags_per_descriptor(), "tags of one descriptor");
    let mut block = vec![0; format.block_size.bytes()];
    Header { kind: BlockKind::Descriptor, sequence }.encode_into(&mut block);
    let mut at = HEADER_SIZE;
    for (n, image) in images.iter().enumerate() {
        let mut flags = image.flags & TagFlags::ESCAPE;
        flags.set(TagFlags::SAME_UUID, n > 0);
        flags.set(TagFlags::LAST, n + 1 == images.len());
        let checksum = copy_checksum(image.copy, sequence, format);
        let tag = Tag { block: image.block, flags, checksum };
        encode_tag(&tag, &mut block[at..at + format.tag_size()], format);
        at += format.tag_size();
        if n == 0 {
            block[at..at + UUID_SIZE].copy_from_slice(uuid);
            at += UUID_SIZE;
        }
    }
    format.seal_block(&mut block);
    block
}

fn encode_tag(tag: &Tag, bytes: &mut [u8], format: &LogFormat) {
    let (low, high) = (tag.block.0 as u32, (tag.block.0 >> 32) as u32);
    let mut put = |at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
    put(0, low);
    match format.checksums {
        LogChecksums::V3(_) => {
            put(4, tag.flags.bits());
            put(12, tag.checksum);
        }
        _ => put(4, tag.checksum << 16 | tag.flags.bits() & 0xffff),
    }
    match format.numbers {
        BlockNumbers::Bits64 => put(8, high),
        BlockNumbers::Bits32 => assert_eq!(high, 0, "block number of 32 bits"),
    }
}

/// Returns whether an unchanged copy of the block would look like a block that belongs to the log
/// itself.
pub fn needs_escape(block: &[u8]) -> bool {
    block.starts_with(&MAGIC.to_be_bytes())
}

/// Changes the copy of a block for which [`needs_escape`] is true, so that the copy cannot be
/// mistaken for a log block.
pub fn escape(copy: &mut [u8]) {
    if let Some(magic) = copy.first_chunk_mut() {
        *magic = [0; 4];
    }
}

/// Undoes [`escape`] in a copy whose tag has [`TagFlags::ESCAPE`].
pub fn unescape(copy: &mut [u8]) {
    if let Some(magic) = copy.first_chunk_mut() {
        *magic = MAGIC.to_be_bytes();
    }
}

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

// Revoke blocks. They list blocks whose copies in the same or an earlier transaction must not be
// replayed.

const COUNT_OFFSET: usize = 12;

/// The records of a revoke block.
#[derive(Debug, Clone)]
pub struct Revokes<'b>(std::slice::ChunksExact<'b, u8>);

impl<'b> Revokes<'b> {
    /// Checks kind, checksum and count of a revoke block.
    ///
    /// # Errors
    /// [`Cause::WrongKind`], [`Cause::Length`], [`Cause::Checksum`] or [`Cause::RevokeCount`].
    pub fn decode(block: &'b [u8], format: &LogFormat) -> Result<Revokes<'b>, Cause> {
        Header::expect(block, BlockKind::Revoke)?;
        format.check_block(block)?;
        let count = word_at(block, COUNT_OFFSET).unwrap_or_default();
        let end = count as usize;
        let room = block.len() - format.tail_size();
        let records = block.get(RECORDS_OFFSET..end).filter(|_| end <= room);
        let records = records.ok_or(Cause::RevokeCount { count })?;
        Ok(Revokes(records.chunks_exact(format.record_size())))
    }
}

impl Iterator for Revokes<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let number = self.0.next()?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        Some(Block(number))
    }
}

/// Encodes a revoke block for `blocks`.
///
/// # Panics
/// If there are more than [`LogFormat::revokes_per_block`] blocks, which is an error of the caller.
pub fn encode_revoke(blocks: &[Block], sequence: Sequence, format: &LogFormat) -> Vec<u8> {
    assert!(blocks.len() <= format.revokes_per_block(), "records of one revoke block");
    let mut bytes = vec![0; format.block_size.bytes()];
    Header { kind: BlockKind::Revoke, sequence }.encode_into(&mut bytes);
    let size = format.record_size();
    let end = RECORDS_OFFSET + blocks.len() * size;
    bytes[COUNT_OFFSET..RECORDS_OFFSET].copy_from_slice(&(end as u32).to_be_bytes());
    for (record, block) in bytes[RECORDS_OFFSET..end].chunks_exact_mut(size).zip(blocks) {
        record.copy_from_slice(&block.0.to_be_bytes()[8 - size..]);
    }
    format.seal_block(&mut bytes);
    bytes
}
