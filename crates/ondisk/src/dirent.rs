//! Directory blocks: entries, tails, and their checksums.
//!
//! A block of a linear directory, and a leaf of an indexed one, is a chain of records that covers
//! the block; `rec_len` is the length of a record. With `metadata_csum` the last 12 bytes are a
//! tail in the form of an unused record. Source: kernel documentation, *ext4: Directory Entries*.
//!
//! # Invariants
//! An entry of [`entries`] is inside the block, four-byte aligned and after the previous one, so
//! that every walk ends after at most `block size / 12` steps.

mod edit;
mod name;
mod tail;

pub use edit::{
    Packed, Room, clear, find_room, insert, insert_at, new_directory, pack, remove, replace, space,
};
pub use name::{Name, NameError};
pub use tail::{seal, verify};

use crate::{BlockSize, FileType, Ino};
use thiserror::Error;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a record before its name.
pub const HEADER: usize = 8;
/// The shortest record: a header and a name of one to four bytes.
pub const MIN_RECORD: usize = 12;
/// The longest name in bytes.
pub const MAX_NAME: usize = 255;
/// Bytes of the checksum tail.
pub const TAIL: usize = 12;

/// `struct ext4_dir_entry_2` without the name. Without the feature `filetype` the last byte is the
/// high half of the name's length, and zero.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDirEntry {
    inode: U32,
    rec_len: U16,
    name_len: u8,
    file_type: u8,
}

const _: () = assert!(size_of::<RawDirEntry>() == HEADER);

/// The format of the directory blocks of one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirFormat {
    /// Bytes of a block.
    pub block_size: BlockSize,
    /// Feature `filetype`: entries contain the type of their inode.
    pub has_file_types: bool,
    /// Feature `metadata_csum`: blocks end in a tail with a checksum.
    pub has_checksums: bool,
    /// Feature `large_dir`: an index may have one more level, and a directory may have more than 4
    /// GiB.
    pub has_large_dirs: bool,
    /// Number of inodes of the file system, which is the highest inode number.
    pub inodes: u32,
}

impl DirFormat {
    /// Returns how many bytes of a leaf records can use.
    pub fn record_bytes(&self) -> usize {
        self.block_size.bytes() - if self.has_checksums { TAIL } else { 0 }
    }
}

/// A checked record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The offset of the record, in bytes from the start of the block.
    pub offset: usize,
    /// Bytes of the record, including the slack after the name.
    pub rec_len: usize,
    /// The inode number; `None` for an unused record.
    pub ino: Option<Ino>,
    /// The file type, if the directory stores it and it is a known one.
    pub file_type: Option<FileType>,
    /// The name; without meaning in an unused record.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Returns whether the name is "." or "..".
    pub fn is_dot(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// The possible faults of a directory block. Offsets are bytes from the start of the block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the offset and the value found there
pub enum Cause {
    #[error("{found} bytes where a block of {expected} was expected")]
    Length { expected: usize, found: usize },
    #[error("the record at {offset} is {rec_len} bytes, less than its header and name need")]
    RecordTooShort { offset: usize, rec_len: usize },
    #[error("the record at {offset} is {rec_len} bytes, not a multiple of four")]
    RecordUnaligned { offset: usize, rec_len: usize },
    #[error("the record at {offset} is {rec_len} bytes and crosses the end at {end}")]
    RecordPastEnd { offset: usize, rec_len: usize, end: usize },
    #[error("the record at {offset} leaves no room for another before the end")]
    RecordNearEnd { offset: usize },
    #[error("the name at {offset} is empty")]
    NameEmpty { offset: usize },
    #[error("the name at {offset} contains a slash or NUL")]
    NameByte { offset: usize },
    #[error("the record at {offset} names inode {ino} of {inodes}")]
    InodeRange { offset: usize, ino: u32, inodes: u32 },
    #[error("no record starts at {offset}")]
    NoRecord { offset: usize },
    #[error("\".\" or \"..\" at {offset}, where it must not be")]
    MisplacedDot { offset: usize },
    #[error("the directory does not start with \".\" and \"..\"")]
    NoDots,
    #[error("an entry names the directory that it is in")]
    NamesItself,
    #[error("its parents form a ring")]
    ParentRing,
    #[error("no checksum tail")]
    NoTail,
    #[error("the block is a hole")]
    Hole,
    #[error("checksum {found:#010x}, computed {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
}

/// Iterates over the entries of a linear block or leaf, unused records included, with all checks.
///
/// # Errors
/// Fails at once for a wrong length or a missing tail; returns a broken record as the last item.
pub fn entries<'a>(format: &DirFormat, block: &'a [u8]) -> Result<Entries<'a>, Cause> {
    Ok(Entries { records: records(format, block)? })
}

/// Iterates over the offsets and names of the entries of a linear block or leaf. Checks only the
/// bounds of the records.
///
/// # Errors
/// The same as for [`entries`].
pub fn places<'a>(
    format: &DirFormat,
    block: &'a [u8],
) -> Result<impl Iterator<Item = Result<(usize, &'a [u8]), Cause>> + use<'a>, Cause> {
    let used = |record: &Result<Record<'a>, Cause>| !matches!(record, Ok(Record { ino: 0, .. }));
    let place = |record: Record<'a>| (record.offset, record.name);
    Ok(records(format, block)?.filter(used).map(move |record| record.map(place)))
}

/// Finds the entry with that name in a linear block or leaf. Checks the bounds of all records
/// before the entry, and the whole entry; [`entries`] checks the other names when the block is
/// read.
pub fn find<'a>(
    format: &DirFormat,
    block: &'a [u8],
    name: Name<'_>,
) -> Result<Option<Entry<'a>>, Cause> {
    for record in records(format, block)? {
        let record = record?;
        if record.ino != 0 && record.name == name.bytes() {
            return record.check(format).map(Some);
        }
    }
    Ok(None)
}

/// Returns the entry at `offset` of a linear block or leaf, if it has that name.
///
/// # Errors
/// If no record starts at `offset`.
pub fn named_at<'a>(
    format: &DirFormat,
    block: &'a [u8],
    offset: usize,
    name: Name<'_>,
) -> Result<Option<Entry<'a>>, Cause> {
    check_length(format, block)?;
    let record = record(format.block_size, block, offset, format.record_bytes())?;
    match record.ino != 0 && record.name == name.bytes() {
        true => record.check(format).map(Some),
        false => Ok(None),
    }
}

/// Returns the record at `offset`, which may also be "." or ".." in the root of an index.
pub fn entry_at<'a>(
    format: &DirFormat,
    block: &'a [u8],
    offset: usize,
) -> Result<Entry<'a>, Cause> {
    check_length(format, block)?;
    record(format.block_size, block, offset, block.len())?.check(format)
}

/// Returns "." and "..", which start the first block of every directory, indexed or not. The record
/// of ".." may extend to the end of the block, as it does in the root of an index.
pub fn dots<'a>(format: &DirFormat, block: &'a [u8]) -> Result<(Entry<'a>, Entry<'a>), Cause> {
    let dot = entry_at(format, block, 0)?;
    if dot.name != b"." || dot.ino.is_none() || dot.rec_len == block.len() {
        return Err(Cause::NoDots);
    }
    let dot_dot = entry_at(format, block, dot.rec_len)?;
    if dot_dot.name != b".." || dot_dot.ino.is_none() {
        return Err(Cause::NoDots);
    }
    Ok((dot, dot_dot))
}

fn check_length(format: &DirFormat, block: &[u8]) -> Result<(), Cause> {
    let expected = format.block_size.bytes();
    if block.len() != expected {
        return Err(Cause::Length { expected, found: block.len() });
    }
    Ok(())
}

/// See [`entries`].
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    records: Records<'a>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Cause>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.records.next()?.and_then(|record| record.check(&self.records.format));
        if entry.is_err() {
            self.records.at = self.records.end;
        }
        Some(entry)
    }
}

/// A record inside the block, with unchecked contents.
#[derive(Debug, Clone, Copy)]
struct Record<'a> {
    offset: usize,
    rec_len: usize,
    ino: u32,
    file_type: u8,
    name: &'a [u8],
}

impl<'a> Record<'a> {
    fn used(&self) -> usize {
        if self.ino == 0 { 0 } else { space(self.name.len()) }
    }

    fn check(&self, format: &DirFormat) -> Result<Entry<'a>, Cause> {
        let Record { offset, rec_len, ino, file_type, name } = *self;
        if ino == 0 {
            return Ok(Entry { offset, rec_len, ino: None, file_type: None, name });
        }
        if ino > format.inodes {
            return Err(Cause::InodeRange { offset, ino, inodes: format.inodes });
        }
        if name.is_empty() {
            return Err(Cause::NameEmpty { offset });
        }
        if name.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Err(Cause::NameByte { offset });
        }
        let file_type = match format.has_file_types {
            true => FileType::from_dirent(file_type),
            false => None,
        };
        Ok(Entry { offset, rec_len, ino: Some(Ino(ino)), file_type, name })
    }
}

/// Iterates over the records of a linear block or leaf, checking their bounds.
fn records<'a>(format: &DirFormat, block: &'a [u8]) -> Result<Records<'a>, Cause> {
    check_length(format, block)?;
    if format.has_checksums && tail::stored(block).is_none() {
        return Err(Cause::NoTail);
    }
    Ok(Records { format: *format, block, at: 0, end: format.record_bytes() })
}

#[derive(Debug, Clone)]
struct Records<'a> {
    format: DirFormat,
    block: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Cause>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let record = record(self.format.block_size, self.block, self.at, self.end);
        self.at = match &record {
            Ok(record) => record.offset + record.rec_len,
            Err(_) => self.end,
        };
        Some(record)
    }
}

/// Decodes the record at `offset`, which must end at `end` or leave room for another record before
/// `end`.
fn record(
    block_size: BlockSize,
    block: &[u8],
    offset: usize,
    end: usize,
) -> Result<Record<'_>, Cause> {
    let header = block.get(offset..).and_then(|rest| RawDirEntry::ref_from_prefix(rest).ok());
    let (header, after) = header.ok_or(Cause::NoRecord { offset })?;
    let rec_len = decode_rec_len(header.rec_len.get(), block_size);
    let name_len = usize::from(header.name_len);
    if rec_len < MIN_RECORD || rec_len < space(name_len) {
        return Err(Cause::RecordTooShort { offset, rec_len });
    }
    if !rec_len.is_multiple_of(4) {
        return Err(Cause::RecordUnaligned { offset, rec_len });
    }
    if end < offset || rec_len > end - offset {
        return Err(Cause::RecordPastEnd { offset, rec_len, end });
    }
    let left = end - offset - rec_len;
    if left != 0 && left < MIN_RECORD {
        return Err(Cause::RecordNearEnd { offset });
    }
    let name = after.get(..name_len).unwrap_or_default();
    let (ino, file_type) = (header.inode.get(), header.file_type);
    Ok(Record { offset, rec_len, ino, file_type, name })
}

/// Decodes a record's length. A record that fills a 64 KiB block does not fit into 16 bits and is
/// written as 65,535 (by older writers as 0); in other lengths the low two bits are unused.
fn decode_rec_len(raw: u16, block_size: BlockSize) -> usize {
    let raw = usize::from(raw);
    match (block_size.bytes() == 1 << 16, raw) {
        (false, _) => raw,
        (true, 0 | 0xffff) => 1 << 16,
        (true, _) => raw & 0xfffc | (raw & 3) << 16,
    }
}

fn encode_rec_len(rec_len: usize) -> u16 {
    u16::try_from(rec_len).unwrap_or(0xffff)
}

#[cfg(test)]
mod tests;
