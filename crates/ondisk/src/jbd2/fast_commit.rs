//! Reads and encodes fast commits, whose area follows the log.
//!
//! The area consists of records. A record has a tag, a length and a value, all little endian. A
//! fast commit is a sequence of records that ends with a `TAIL`, which contains a checksum of all
//! of them. The first fast commit starts with a `HEAD`. No record crosses the end of a block: a
//! padding record fills the rest of the block, and the length in a `TAIL` includes all bytes up to
//! the end of its block. A fast commit without its `TAIL` was not acknowledged. The fast commits
//! end where a fast commit has no `TAIL`, or where bytes are not a record.
//!
//! Source: kernel documentation, "ext4 journal", *Fast commits*, and logs of the kernel (6.18).

use crate::cause::Jbd2Cause as Cause;
use crate::checksum::Seed;
use crate::jbd2::block::Sequence;
use crate::types::{Block, BlockSize, Ino};
use std::collections::HashMap;
use std::ops::Range;

const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREAT: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;
/// A record's tag and length.
const PREFIX: usize = 4;
/// Size of the value of an `ADD_RANGE` record: an inode number and an extent.
const ADDED: usize = 16;
/// Size of the value of a `DEL_RANGE` record: an inode number, a block, and a length.
const REMOVED: usize = 12;
/// The number of bytes before a name: the inode number of the directory, and the inode number that
/// the name refers to.
const BEFORE_NAME: usize = 8;
/// The shortest inode, in bytes.
const GOOD_OLD_SIZE: usize = 128;
/// The largest length of an extent with data. A greater length means that reading the blocks
/// returns zeros.
const WRITTEN_MAX: u32 = 1 << 15;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastName {
    /// The directory.
    pub parent: Ino,
    /// The inode that the name refers to.
    pub ino: Ino,
    /// The name, checked: not empty, no "/", no NUL, neither "." nor "..".
    pub name: Vec<u8>,
}

/// One change of a fast commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastChange {
    /// Device blocks were assigned to a range of a file's blocks.
    AddRange {
        /// The file.
        ino: Ino,
        /// The range of the file's blocks, which is never empty.
        range: Range<u32>,
        /// The device block of the first file block.
        block: Block,
        /// Whether the blocks contain data; if not, reading them returns zeros.
        is_written: bool,
    },
    /// A range of a file's blocks became a hole.
    RemoveRange {
        /// The file.
        ino: Ino,
        /// The range of the file's blocks, which is never empty.
        range: Range<u32>,
    },
    /// An inode was created with this name.
    Create(FastName),
    /// An inode got an additional name.
    Link(FastName),
    /// A name was removed.
    Unlink(FastName),
    /// An inode's fields changed.
    Inode {
        /// The inode.
        ino: Ino,
        /// The first bytes of the inode in the inode table, at least 128. If the inode has an
        /// extent tree, the bytes of `i_block` have no meaning.
        record: Vec<u8>,
    },
}

/// The reason why fast commits cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FastFault {
    /// A record of a complete fast commit is damaged although the checksum is right.
    #[error("block {block}: {cause}")]
    Damaged {
        /// The block, counted from the start of the area.
        block: u32,
        /// The fault.
        cause: Cause,
    },
    /// A `HEAD` has features that are not known. Its fast commit may be incomplete.
    #[error("features {found:#x}")]
    Features {
        /// The field `fc_features`.
        found: u32,
    },
}

/// Whether more records may follow after a block of the area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastNext {
    /// The next block may have more records.
    Read,
    /// The fast commits end here.
    End,
}

/// Collects the changes of all complete fast commits of one transaction, block by block.
#[derive(Debug)]
pub struct FastCommits {
    expected: Sequence,
    /// The number of blocks that were read.
    blocks: u32,
    /// The checksum of the open fast commit, that is, of its records so far: its `TAIL` was not
    /// read yet. The checksum starts from zero, unlike the other checksums of the journal.
    sum: Seed,
    has_head: bool,
    open: Vec<FastChange>,
    /// The first fault of the open fast commit. It is returned as an error only if the `TAIL` of
    /// this fast commit follows.
    fault: Option<FastFault>,
    changes: Vec<FastChange>,
    /// The number of complete fast commits.
    count: u32,
}

impl FastCommits {
    /// Creates a reader for the fast commits of transaction `expected`, the first transaction that
    /// is not complete in the log.
    pub fn new(expected: Sequence) -> FastCommits {
        FastCommits {
            expected,
            blocks: 0,
            sum: Seed::from_raw(0),
            has_head: false,
            open: Vec::new(),
            fault: None,
            changes: Vec::new(),
            count: 0,
        }
    }

    /// Returns the number of complete fast commits.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the changes of the complete fast commits, in order. If a fast commit has
    /// [`FastChange::Inode`] for an inode, the inode's ranges in the same fast commit are returned
    /// after it.
    pub fn into_changes(self) -> Vec<FastChange> {
        self.changes
    }

    /// Reads the next block of the area.
    ///
    /// # Errors
    /// [`FastFault::Damaged`] and [`FastFault::Features`].
    pub fn add(&mut self, block: &[u8]) -> Result<FastNext, FastFault> {
        let n = self.blocks;
        self.blocks = self.blocks.saturating_add(1);
        let mut at = 0;
        while let Some((tag, value)) = record_at(block, at) {
            let start = at + PREFIX;
            at = start + value.len();
            let record = block.get(start - PREFIX..at).unwrap_or_default();
            match tag {
                HEAD => {
                    let tid = word_at(value, 4);
                    if value.len() != 8 || tid != Some(self.expected.0) {
                        return Ok(FastNext::End);
                    }
                    if let Some(found) = word_at(value, 0).filter(|found| *found != 0) {
                        return Err(FastFault::Features { found });
                    }
                    self.has_head = true;
                }
                _ if !self.has_head => return Ok(FastNext::End),
                TAIL => {
                    let summed = record.get(..PREFIX + 4).unwrap_or_default();
                    let is_whole = word_at(value, 0) == Some(self.expected.0)
                        && word_at(value, 4) == Some(self.sum.chain(summed).value());
                    if !is_whole {
                        return Ok(FastNext::End);
                    }
                    self.close()?;
                    continue;
                }
                PAD => {}
                // Zeros mean that nothing was written to this part of the area.
                0 => return Ok(FastNext::End),
                _ => match change(tag, value) {
                    Ok(change) => self.open.push(change),
                    Err(wrong) => {
                        let cause = wrong.at(start - PREFIX, tag);
                        let fault = FastFault::Damaged { block: n, cause };
                        self.fault.get_or_insert(fault);
                    }
                },
            }
            self.sum = self.sum.chain(record);
        }
        Ok(FastNext::Read)
    }

    fn close(&mut self) -> Result<(), FastFault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        put_records_first(&mut self.open);
        self.changes.append(&mut self.open);
        self.count = self.count.saturating_add(1);
        self.sum = Seed::from_raw(0);
        Ok(())
    }
}

/// Moves all ranges of an inode behind the first [`FastChange::Inode`] of this inode. The move is
/// needed because a fast commit may contain an inode's ranges before the inode itself. If the inode
/// number belonged to another inode before the fast commit, the ranges must not be applied to that
/// inode.
fn put_records_first(changes: &mut Vec<FastChange>) {
    let mut records = HashMap::new();
    for (n, change) in changes.iter().enumerate() {
        if let FastChange::Inode { ino, .. } = change {
            records.entry(*ino).or_insert(n);
        }
    }
    let key = |(n, change): &(usize, FastChange)| match change {
        FastChange::AddRange { ino, .. } | FastChange::RemoveRange { ino, .. } => {
            records.get(ino).map_or((*n, false), |record| (*n.max(record), true))
        }
        _ => (*n, false),
    };
    let mut keyed: Vec<(usize, FastChange)> = changes.drain(..).enumerate().collect();
    keyed.sort_by_key(key);
    changes.extend(keyed.into_iter().map(|(_, change)| change));
}

/// A record's fault, without the position of the record.
enum Wrong {
    Tag,
    Length(usize),
    Name,
    Range,
}

impl Wrong {
    fn at(self, offset: usize, tag: u16) -> Cause {
        match self {
            Wrong::Tag => Cause::FastTag { offset, tag },
            Wrong::Length(len) => Cause::FastLength { offset, tag, len },
            Wrong::Name => Cause::FastName { offset },
            Wrong::Range => Cause::FastRange { offset },
        }
    }
}

/// Returns the tag and the value of the record at `at`, if the block has room for it.
fn record_at(block: &[u8], at: usize) -> Option<(u16, &[u8])> {
    let rest = block.get(at..)?;
    let len = usize::from(half_at(rest, 2)?);
    Some((half_at(rest, 0)?, rest.get(PREFIX..PREFIX + len)?))
}

fn change(tag: u16, value: &[u8]) -> Result<FastChange, Wrong> {
    let length = || Wrong::Length(value.len());
    let word = |at| word_at(value, at).ok_or_else(length);
    match tag {
        ADD_RANGE if value.len() != ADDED => Err(length()),
        DEL_RANGE if value.len() != REMOVED => Err(length()),
        ADD_RANGE => {
            let len = u32::from(half_at(value, 8).ok_or_else(length)?);
            let high = u64::from(half_at(value, 10).ok_or_else(length)?);
            let block = Block(high << 32 | u64::from(word(12)?));
            let is_written = len <= WRITTEN_MAX;
            let len = if is_written { len } else { len - WRITTEN_MAX };
            let range = range_of(word(4)?, len)?;
            Ok(FastChange::AddRange { ino: Ino(word(0)?), range, block, is_written })
        }
        DEL_RANGE => {
            let (start, len) = (word(4)?, word(8)?);
            Ok(FastChange::RemoveRange { ino: Ino(word(0)?), range: range_of(start, len)? })
        }
        CREAT => Ok(FastChange::Create(name_of(value)?)),
        LINK => Ok(FastChange::Link(name_of(value)?)),
        UNLINK => Ok(FastChange::Unlink(name_of(value)?)),
        INODE => match value.split_first_chunk() {
            Some((ino, record)) if record.len() >= GOOD_OLD_SIZE => Ok(FastChange::Inode {
                ino: Ino(u32::from_le_bytes(*ino)),
                record: record.to_vec(),
            }),
            _ => Err(length()),
        },
        _ => Err(Wrong::Tag),
    }
}

/// Returns the range of `len` blocks of a file from `start` on. The range ends before block
/// `u32::MAX` at the latest, because no file has that block.
fn range_of(start: u32, len: u32) -> Result<Range<u32>, Wrong> {
    let end = start.saturating_add(len);
    (start < end).then_some(start..end).ok_or(Wrong::Range)
}

fn name_of(value: &[u8]) -> Result<FastName, Wrong> {
    let word = |at| word_at(value, at).ok_or(Wrong::Length(value.len()));
    let name = value.get(BEFORE_NAME..).unwrap_or_default();
    let is_dot = matches!(name, b"." | b"..");
    let fits = (1..=255).contains(&name.len());
    if !fits || is_dot || name.contains(&0) || name.contains(&b'/') {
        return Err(Wrong::Name);
    }
    Ok(FastName { parent: Ino(word(0)?), ino: Ino(word(4)?), name: name.to_vec() })
}

fn half_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The position of a fast commit among those of its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastPlace {
    /// At the start of the area, with `HEAD`.
    First,
    /// After another fast commit.
    Later,
}

/// Encodes a fast commit with `changes` in transaction `sequence` as whole blocks. Returns `None`
/// if a change cannot be a record, because a name or an inode is too long for a block, or because a
/// range cannot be an extent.
pub fn encode_fast_commit(
    changes: &[FastChange],
    sequence: Sequence,
    place: FastPlace,
    block_size: BlockSize,
) -> Option<Vec<u8>> {
    let size = block_size.bytes();
    let mut bytes = Vec::new();
    if place == FastPlace::First {
        put(&mut bytes, size, HEAD, &words(&[0, sequence.0]))?;
    }
    for change in changes {
        let (tag, value) = record(change)?;
        put(&mut bytes, size, tag, &value)?;
    }
    put(&mut bytes, size, TAIL, &words(&[sequence.0, 0]))?;
    let sum_at = bytes.len().checked_sub(4)?;
    // The length in `TAIL` includes all bytes up to the end of its block.
    let end = bytes.len().next_multiple_of(size);
    let len_at = sum_at.checked_sub(4 + 2)?;
    let len = u16::try_from(end - (len_at + 2)).ok()?;
    bytes.get_mut(len_at..len_at + 2)?.copy_from_slice(&len.to_le_bytes());
    let sum = Seed::from_raw(0).chain(bytes.get(..sum_at)?).value();
    bytes.get_mut(sum_at..)?.copy_from_slice(&sum.to_le_bytes());
    bytes.resize(end, 0);
    Some(bytes)
}

/// Adds a record. No record crosses the end of a block, and each block keeps room for a padding
/// record.
fn put(bytes: &mut Vec<u8>, size: usize, tag: u16, value: &[u8]) -> Option<()> {
    let len = PREFIX + value.len();
    if len + PREFIX > size {
        return None;
    }
    let left = size - bytes.len() % size;
    if len + PREFIX > left {
        let padding = left - PREFIX;
        bytes.extend(PAD.to_le_bytes());
        bytes.extend(u16::try_from(padding).ok()?.to_le_bytes());
        bytes.resize(bytes.len() + padding, 0);
    }
    bytes.extend(tag.to_le_bytes());
    bytes.extend(u16::try_from(value.len()).ok()?.to_le_bytes());
    bytes.extend(value);
    Some(())
}

/// Returns the tag and the value of a change.
fn record(change: &FastChange) -> Option<(u16, Vec<u8>)> {
    Some(match change {
        FastChange::AddRange { ino, range, block, is_written } => {
            let len = range.end.checked_sub(range.start)?;
            let most = if *is_written { WRITTEN_MAX } else { WRITTEN_MAX - 1 };
            if len == 0 || len > most {
                return None;
            }
            let len = u16::try_from(if *is_written { len } else { len + WRITTEN_MAX }).ok()?;
            let high = u16::try_from(block.0 >> 32).ok()?;
            let mut value = words(&[ino.0, range.start]);
            value.extend(len.to_le_bytes());
            value.extend(high.to_le_bytes());
            value.extend((block.0 as u32).to_le_bytes());
            (ADD_RANGE, value)
        }
        FastChange::RemoveRange { ino, range } => {
            (DEL_RANGE, words(&[ino.0, range.start, range.end.checked_sub(range.start)?]))
        }
        FastChange::Create(name) => (CREAT, named(name)),
        FastChange::Link(name) => (LINK, named(name)),
        FastChange::Unlink(name) => (UNLINK, named(name)),
        FastChange::Inode { ino, record } => {
            let mut value = words(&[ino.0]);
            value.extend(record);
            (INODE, value)
        }
    })
}

fn named(name: &FastName) -> Vec<u8> {
    let mut value = words(&[name.parent.0, name.ino.0]);
    value.extend(&name.name);
    value
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests;
