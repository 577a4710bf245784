//! The records of a block, decoded and checked.

use super::format::{
    DirFormat, MIN_RECORD, NameForm, RawDirEntry, check_length, decode_rec_len, space,
};
use super::name::Name;
use super::tail;
use crate::cause::dirent::Cause;
use crate::types::{BlockSize, FileType, Ino};
use zerocopy::FromBytes;

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
/// Fails at once if the block has a wrong length or no tail. For a broken record, the iterator
/// returns an error as its last item.
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
        let entry = self.records.next()?.and_then(|record| record.check(&self.records.format));
        if entry.is_err() {
            self.records.at = self.records.end;
        }
        Some(entry)
    }
}

/// A record inside the block, with unchecked contents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) offset: usize,
    pub(super) rec_len: usize,
    pub(super) ino: u32,
    pub(super) file_type: u8,
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
    if format.has_checksums && tail::stored(block).is_none() {
        return Err(Cause::NoTail);
    }
    Ok(Records { format: *format, block, at, end: format.record_bytes() })
}

#[derive(Debug, Clone)]
pub(super) struct Records<'a> {
    pub(super) format: DirFormat,
    pub(super) block: &'a [u8],
    pub(super) at: usize,
    pub(super) end: usize,
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
pub(super) fn record(
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
