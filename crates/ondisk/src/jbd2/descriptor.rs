//! Descriptors. A descriptor contains tags. Each tag has the number of a block; the copies of these
//! blocks follow the descriptor.

use super::format::{BlockNumbers, LogChecksums, LogFormat, UUID_SIZE};
use super::header::{HEADER_SIZE, Header, MAGIC, Sequence, word_at};
use super::kind::BlockKind;
use crate::cause::jbd2::Cause;
use crate::types::Block;
use bitflags::bitflags;

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
    let sum = |seed: crate::checksum::Seed| seed.chain(&sequence.0.to_be_bytes()).chain(copy);
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
