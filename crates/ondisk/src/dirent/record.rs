//! The names, records and tails of a directory block.

use crate::cause::DirentCause as Cause;
use crate::checksum::Seed;
use crate::types::{BlockSize, FileType, Ino};
use thiserror::Error;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The longest name in bytes.
pub const MAX_NAME: usize = 255;

/// A name of 1 to 255 bytes without `/` and NUL, or with any bytes if it is encrypted. "." and ".."
/// are names too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a>(&'a [u8]);

/// The reason why bytes are not a name. This is an error of the caller, never of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name has more than 255 bytes.
    #[error("the name is longer than 255 bytes")]
    TooLong,
    /// The name contains a slash or NUL.
    #[error("the name contains a slash or NUL")]
    Byte,
}

impl<'a> Name<'a> {
    /// Creates a plain name from `bytes`, after checking them.
    pub fn new(bytes: &'a [u8]) -> Result<Name<'a>, NameError> {
        Name::of(NameForm::Plain, bytes)
    }

    /// Creates a name of the given form from `bytes`, after checking them.
    pub fn of(form: NameForm, bytes: &'a [u8]) -> Result<Name<'a>, NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.len() > MAX_NAME {
            return Err(NameError::TooLong);
        }
        if form == NameForm::Plain && bytes.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Err(NameError::Byte);
        }
        Ok(Name(bytes))
    }

    /// Returns the bytes of the name.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the name's length as a record stores it: in one byte, which is enough for every
    /// length.
    pub(super) fn len_byte(self) -> u8 {
        self.0.len() as u8
    }
}

/// Bytes of a record before its name.
pub const HEADER: usize = 8;
/// The shortest record: a header and a name of one to four bytes.
pub const MIN_RECORD: usize = 12;
/// Bytes of the checksum tail.
pub const TAIL: usize = 12;

/// `struct ext4_dir_entry_2` without the name. Without the feature `filetype` the last byte is the
/// high half of the name's length, which is always zero.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawDirEntry {
    pub(super) inode: U32,
    pub(super) rec_len: U16,
    pub(super) name_len: u8,
    pub(super) file_type: u8,
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
    /// Feature `large_dir`: an index may have one more level, and a directory may be larger than 4
    /// GiB.
    pub has_large_dirs: bool,
    /// Number of inodes in the file system, which is also the highest inode number.
    pub inodes: u32,
    /// The bytes that names may contain.
    pub names: NameForm,
}

/// The bytes that the names in a directory may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameForm {
    /// All bytes except `/` and NUL.
    #[default]
    Plain,
    /// All bytes, because the names are encrypted.
    Encrypted,
}

impl DirFormat {
    /// Returns the number of bytes in a leaf that records can use.
    pub fn record_bytes(&self) -> usize {
        self.block_size.bytes() - if self.has_checksums { TAIL } else { 0 }
    }
}

/// Returns how many bytes a record with a name of `name_len` bytes needs.
#[inline]
pub fn space(name_len: usize) -> usize {
    (HEADER + name_len + 3) & !3
}

fn check_length(format: &DirFormat, block: &[u8]) -> Result<(), Cause> {
    let expected = format.block_size.bytes();
    if block.len() != expected {
        return Err(Cause::Length { expected, found: block.len() });
    }
    Ok(())
}

/// Decodes a record's length. In 64 KiB blocks, the length of a record that fills the block does
/// not fit into 16 bits and is written as 65,535 (by older writers as 0). In 64 KiB blocks, any
/// value except these two has bits 16 and 17 of the length in its low two bits.
fn decode_rec_len(raw: u16, block_size: BlockSize) -> usize {
    let raw = usize::from(raw);
    match (block_size.bytes() == 1 << 16, raw) {
        (false, _) => raw,
        (true, 0 | 0xffff) => 1 << 16,
        (true, _) => raw & 0xfffc | (raw & 3) << 16,
    }
}

pub(super) fn encode_rec_len(rec_len: usize) -> u16 {
    u16::try_from(rec_len).unwrap_or(0xffff)
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
    /// The file type, if the directory stores it and the type is known.
    pub file_type: Option<FileType>,
    /// The name, which has no meaning in an unused record.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// Returns whether the name is "." or "..".
    pub fn is_dot(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// Iterates over the entries of a linear block or leaf, unused records included, with all checks.
///
/// # Errors
/// Fails at once if the block has a wrong length or no tail. An entry with a fault is an error
/// item; if the fault is its record's length, it is the last one.
pub fn entries<'a>(format: &DirFormat, block: &'a [u8]) -> Result<Entries<'a>, Cause> {
    Ok(Entries { records: records(format, block)? })
}

/// Iterates over the entries of a directory that is stored in its inode (feature `inline_data`),
/// with all checks. `area` is one of the inode's two areas for entries. It contains no tail, and no
/// entries for "." and "..".
pub fn inline_entries<'a>(format: &DirFormat, area: &'a [u8]) -> Entries<'a> {
    Entries { records: Records { format: *format, block: area, at: 0, end: area.len() } }
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
/// before the entry, and checks the entry itself completely. The other names need no check, because
/// [`entries`] checks them when the block is read.
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

/// Returns the entry at `offset` of a linear block or leaf, if the entry has that name.
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

/// Returns "." and "..", the first two entries in the first block of every directory, indexed or
/// not. The record of ".." may extend to the end of the block, as in the root of an index.
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

/// See [`entries`].
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    records: Records<'a>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Cause>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.records.next()?.and_then(|record| record.check(&self.records.format)))
    }
}

/// A record inside the block, with unchecked contents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) offset: usize,
    pub(super) rec_len: usize,
    pub(super) ino: u32,
    file_type: u8,
    pub(super) name: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn used(&self) -> usize {
        if self.ino == 0 { 0 } else { space(self.name.len()) }
    }

    pub(super) fn check(&self, format: &DirFormat) -> Result<Entry<'a>, Cause> {
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
        if format.names == NameForm::Plain && name.iter().any(|&byte| byte == b'/' || byte == 0) {
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
pub(super) fn records<'a>(format: &DirFormat, block: &'a [u8]) -> Result<Records<'a>, Cause> {
    records_from(format, block, 0)
}

/// Iterates like [`records`], but starts at the record at offset `at`.
pub(super) fn records_from<'a>(
    format: &DirFormat,
    block: &'a [u8],
    at: usize,
) -> Result<Records<'a>, Cause> {
    check_length(format, block)?;
    if format.has_checksums && stored_checksum(block).is_none() {
        return Err(Cause::NoTail);
    }
    Ok(Records { format: *format, block, at, end: format.record_bytes() })
}

#[derive(Debug, Clone)]
pub(super) struct Records<'a> {
    format: DirFormat,
    block: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Cause>;

    // Inlined, so that a loop keeps the record in registers. This matters because each look-up of a
    // name runs such a loop.
    #[inline(always)]
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
#[inline(always)]
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
    let long_enough = rec_len >= MIN_RECORD && rec_len >= space(name_len);
    let within = offset <= end && rec_len <= end - offset;
    let at_end = |left: usize| left == 0 || left >= MIN_RECORD;
    let fits = long_enough && rec_len.is_multiple_of(4) && within && at_end(end - offset - rec_len);
    match after.get(..name_len) {
        Some(name) if fits => {
            let (ino, file_type) = (header.inode.get(), header.file_type);
            Ok(Record { offset, rec_len, ino, file_type, name })
        }
        _ => Err(misfit(offset, rec_len, name_len, end)),
    }
}

/// Returns what is wrong with the bounds of a record.
#[cold]
fn misfit(offset: usize, rec_len: usize, name_len: usize, end: usize) -> Cause {
    if rec_len < MIN_RECORD || rec_len < space(name_len) {
        return Cause::RecordTooShort { offset, rec_len };
    }
    if !rec_len.is_multiple_of(4) {
        return Cause::RecordUnaligned { offset, rec_len };
    }
    match end.checked_sub(offset) {
        Some(left) if left >= rec_len => Cause::RecordNearEnd { offset },
        _ => Cause::RecordPastEnd { offset, rec_len, end },
    }
}

/// The file type that marks a tail.
const TAIL_TYPE: u8 = 0xde;

/// `struct ext4_dir_entry_tail`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTail {
    det_reserved_zero1: U32,
    det_rec_len: U16,
    det_reserved_zero2: u8,
    det_reserved_ft: u8,
    det_checksum: U32,
}

const _: () = assert!(size_of::<RawTail>() == TAIL);

/// Writes a tail with this checksum at the end of a block.
pub(super) fn write_tail(block: &mut [u8], checksum: u32) {
    let tail = RawTail {
        det_reserved_zero1: U32::ZERO,
        det_rec_len: U16::new(TAIL as u16),
        det_reserved_zero2: 0,
        det_reserved_ft: TAIL_TYPE,
        det_checksum: U32::new(checksum),
    };
    if let Some(end) = block.last_chunk_mut::<TAIL>() {
        end.copy_from_slice(tail.as_bytes());
    }
}

/// Returns the checksum in the tail, if the block ends in one.
fn stored_checksum(block: &[u8]) -> Option<u32> {
    let (_, tail) = RawTail::ref_from_suffix(block).ok()?;
    let is_tail = tail.det_reserved_zero1.get() == 0
        && usize::from(tail.det_rec_len.get()) == TAIL
        && tail.det_reserved_zero2 == 0
        && tail.det_reserved_ft == TAIL_TYPE;
    is_tail.then_some(tail.det_checksum.get())
}

/// Sets the checksum of a linear block or leaf; without `metadata_csum` does nothing.
pub fn seal(format: &DirFormat, seed: Seed, block: &mut [u8]) {
    if format.has_checksums && block.len() >= TAIL {
        let checksum = tail_checksum(seed, block);
        write_tail(block, checksum);
    }
}

/// Verifies the checksum of a linear block or leaf; `seed` is the seed of the directory's inode.
pub fn verify(format: &DirFormat, seed: Seed, block: &[u8]) -> Result<(), Cause> {
    check_length(format, block)?;
    if !format.has_checksums {
        return Ok(());
    }
    let found = stored_checksum(block).ok_or(Cause::NoTail)?;
    let computed = tail_checksum(seed, block);
    if found != computed {
        return Err(Cause::Checksum { found, computed });
    }
    Ok(())
}

fn tail_checksum(seed: Seed, block: &[u8]) -> u32 {
    let covered = block.len().saturating_sub(TAIL);
    seed.chain(block.get(..covered).unwrap_or_default()).value()
}
