//! Revoke blocks. They list blocks whose copies in the same or an earlier transaction must not be
//! replayed.

use super::format::{LogFormat, RECORDS_OFFSET};
use super::header::{Header, Sequence, word_at};
use super::kind::BlockKind;
use crate::cause::jbd2::Cause;
use crate::types::Block;

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
