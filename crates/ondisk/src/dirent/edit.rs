//! Changes within one directory block.

use crate::cause::DirentCause as Cause;
use crate::dirent::record::{
    DirFormat, Entry, HEADER, MIN_RECORD, Name, NameForm, RawDirEntry, Record, encode_rec_len,
    entry_at, records, records_from, space, write_tail,
};
use crate::types::{FileType, Ino};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// An entry to be written by [`pack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed<'a> {
    /// The inode number.
    pub ino: Ino,
    /// The file type, written if the format has types; `None` means unknown.
    pub file_type: Option<FileType>,
    /// The name.
    pub name: Name<'a>,
}

impl<'a> Packed<'a> {
    /// Creates a [`Packed`] from an entry that was read. Returns `None` if the entry is not in use.
    pub fn from_entry(entry: &Entry<'a>) -> Option<Packed<'a>> {
        // `NameForm::Encrypted` permits all bytes. This is enough, because the name was checked
        // against the directory's form when the entry was read.
        let name = Name::of(NameForm::Encrypted, entry.name).ok()?;
        Some(Packed { ino: entry.ino?, file_type: entry.file_type, name })
    }

    /// Returns the number of bytes that the entry needs.
    pub fn space(&self) -> usize {
        space(self.name.bytes().len())
    }
}

/// Initialises a leaf without entries. A tail is written with checksum 0, which [`super::seal`]
/// sets.
pub fn clear(format: &DirFormat, block: &mut [u8]) {
    block.fill(0);
    write(format, block, 0, format.record_bytes().min(block.len()), None);
    if format.has_checksums {
        write_tail(block, 0);
    }
}

/// Creates a leaf that contains these entries in the given order. The last record gets the rest of
/// the block as slack. Returns `None` if they do not fit.
pub fn pack(format: &DirFormat, packed: &[Packed<'_>]) -> Option<Vec<u8>> {
    let mut block = vec![0; format.block_size.bytes()];
    clear(format, &mut block);
    let end = format.record_bytes();
    let mut at = 0;
    for (i, entry) in packed.iter().enumerate() {
        let needed = entry.space();
        if needed > end - at {
            return None;
        }
        let rec_len = if i + 1 == packed.len() { end - at } else { needed };
        write(format, &mut block, at, rec_len, Some(entry));
        at += needed;
    }
    Some(block)
}

/// Creates the first block of a new directory.
pub fn new_directory(format: &DirFormat, ino: Ino, parent: Ino) -> Vec<u8> {
    let dot = |name, ino| Packed {
        ino,
        file_type: Some(FileType::Directory),
        name: Name::new(name).expect("a name"),
    };
    pack(format, &[dot(b".", ino), dot(b"..", parent)]).expect("two short names fit every block")
}

/// A record with slack for one more entry. [`find_room`] returns it, and [`insert_at`] uses it for
/// the same block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    offset: usize,
    used: usize,
    rec_len: usize,
}

/// Finds the first record whose slack is enough for `new`; checks the bounds of all records.
pub fn find_room(
    format: &DirFormat,
    block: &[u8],
    new: &Packed<'_>,
) -> Result<Option<Room>, Cause> {
    let mut room = None;
    for record in records(format, block)? {
        room = room.or(room_in(&record?, new.space())?);
    }
    Ok(room)
}

/// The result of [`find_or_room`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought<'a> {
    /// The entry with the name, and the offset of the record before it, or 0 if the entry is in the
    /// first record.
    Entry {
        /// The entry.
        entry: Entry<'a>,
        /// The offset from which [`remove`] can search.
        before: usize,
    },
    /// No entry has the name. Contains the room for a new entry with the name, if there is room.
    Room(Option<Room>),
}

/// Finds the entry with `name` as [`find`](super::find) does, or room for a new entry with `name`
/// as [`find_room`] does, in one pass over the records.
pub fn find_or_room<'a>(
    format: &DirFormat,
    block: &'a [u8],
    name: Name<'_>,
) -> Result<Sought<'a>, Cause> {
    let needed = space(name.bytes().len());
    let (mut room, mut before) = (None, 0);
    for record in records(format, block)? {
        let record = record?;
        if record.ino != 0 && record.name == name.bytes() {
            return record.check(format).map(|entry| Sought::Entry { entry, before });
        }
        if room.is_none() {
            room = room_in(&record, needed)?;
        }
        before = record.offset;
    }
    Ok(Sought::Room(room))
}

/// Returns the slack of `record` if it has at least `needed` bytes.
#[inline(always)]
fn room_in(record: &Record<'_>, needed: usize) -> Result<Option<Room>, Cause> {
    let (offset, used, rec_len) = (record.offset, record.used(), record.rec_len);
    if record.ino != 0 && record.name.is_empty() {
        // If a new entry got the slack of a used record with an empty name, that record would
        // become shorter than the minimum.
        return Err(Cause::NameEmpty { offset });
    }
    Ok((rec_len - used >= needed).then_some(Room { offset, used, rec_len }))
}

/// Inserts an entry where [`find_room`] found room, and returns its offset. Does not check whether
/// the name exists already.
pub fn insert_at(format: &DirFormat, block: &mut [u8], room: Room, new: &Packed<'_>) -> usize {
    let Room { offset, used, rec_len } = room;
    if used > 0 {
        set_rec_len(block, offset, used);
    }
    write(format, block, offset + used, rec_len - used, Some(new));
    offset + used
}

/// Calls [`find_room`] and [`insert_at`]; returns `None` if there is no room.
pub fn insert(
    format: &DirFormat,
    block: &mut [u8],
    new: &Packed<'_>,
) -> Result<Option<usize>, Cause> {
    let room = find_room(format, block, new)?;
    Ok(room.map(|room| insert_at(format, block, room, new)))
}

/// Removes the entry at `offset`. The entry's record becomes slack of the previous record. If there
/// is no previous record, the entry's record stays as an unused record. The name is overwritten
/// with zeros, so that it does not stay on disk. The search for the previous record starts at
/// `from`, which is 0 or the offset of a record before the entry.
pub fn remove(
    format: &DirFormat,
    block: &mut [u8],
    from: usize,
    offset: usize,
) -> Result<(), Cause> {
    let mut before = None;
    let mut found = None;
    for record in records_from(format, block, from)? {
        let record = record?;
        if record.offset >= offset {
            let used = space(record.name.len());
            found = (record.offset == offset && record.ino != 0).then_some((record.rec_len, used));
            break;
        }
        before = Some((record.offset, record.rec_len));
    }
    let Some((rec_len, used)) = found else { return Err(Cause::NoRecord { offset }) };
    // The slack after the entry is not cleared, because it may be nearly as long as the block, and
    // because it never contained this name.
    if let Some(entry) = block.get_mut(offset..offset + used) {
        entry.fill(0);
    }
    match before {
        Some((before, before_len)) => set_rec_len(block, before, before_len + rec_len),
        None => write(format, block, offset, rec_len, None),
    }
    Ok(())
}

/// Makes the entry at `offset` refer to another inode. Can change ".." in the root of an index too.
pub fn replace(
    format: &DirFormat,
    block: &mut [u8],
    offset: usize,
    ino: Ino,
    file_type: FileType,
) -> Result<(), Cause> {
    if entry_at(format, block, offset)?.ino.is_none() {
        return Err(Cause::NoRecord { offset });
    }
    if let Some(field) = block.get_mut(offset..offset + 4) {
        field.copy_from_slice(&ino.0.to_le_bytes());
    }
    if format.has_file_types
        && let Some(byte) = block.get_mut(offset + 7)
    {
        *byte = file_type.dirent_byte();
    }
    Ok(())
}

fn set_rec_len(block: &mut [u8], offset: usize, rec_len: usize) {
    debug_assert!(rec_len >= MIN_RECORD && rec_len.is_multiple_of(4));
    if let Some(field) = block.get_mut(offset + 4..offset + 6) {
        field.copy_from_slice(&encode_rec_len(rec_len).to_le_bytes());
    }
}

/// Writes a record; the record is unused if `packed` is `None`.
fn write(
    format: &DirFormat,
    block: &mut [u8],
    offset: usize,
    rec_len: usize,
    packed: Option<&Packed<'_>>,
) {
    let header = RawDirEntry {
        inode: U32::new(packed.map_or(0, |packed| packed.ino.0)),
        rec_len: U16::new(encode_rec_len(rec_len)),
        name_len: packed.map_or(0, |packed| packed.name.len_byte()),
        file_type: match packed.and_then(|packed| packed.file_type) {
            Some(file_type) if format.has_file_types => file_type.dirent_byte(),
            _ => 0,
        },
    };
    if let Some(place) = block.get_mut(offset..offset + HEADER) {
        place.copy_from_slice(header.as_bytes());
    }
    if let Some(packed) = packed {
        let name = packed.name.bytes();
        let start = offset + HEADER;
        if let Some(place) = block.get_mut(start..start + name.len()) {
            place.copy_from_slice(name);
        }
    }
}
