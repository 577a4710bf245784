//! Directories whose entries are in the inode.
//!
//! The block field begins with the inode number of the parent. Entries follow in the rest of the
//! field, and in the attribute `system.data`. Source: kernel documentation, *ext4: Inline Data*.

use super::directory::Directory;
use super::dots;
use super::entries::check_entry;
use crate::attributes;
use crate::bytes::{le16, le32, part};
use crate::fault::Fault;
use crate::place::Place;
use crate::record::Record;
use crate::run::Run;
use lanefs_ondisk::dirent::{Cause, Entry, HEADER, MIN_RECORD, space};
use lanefs_ondisk::{FileBlock, FileType, Ino};

/// The size of the parent's inode number in bytes.
const PARENT: usize = 4;

/// Checks an inline directory whose inode has these bytes.
pub(super) fn check(directory: &mut Directory<'_>, bytes: &[u8]) {
    let field = directory.record.block;
    let parent = Ino(le32(&field, 0));
    directory.run.states.count_name(directory.ino); // "." is implied
    dots::parent(directory, parent);
    let mut names = Vec::new();
    check_part(directory, field.get(PARENT..).unwrap_or_default(), &mut names);
    let rest = attributes::inline_data(directory.run, &directory.record, bytes);
    match rest {
        Some(rest) => {
            let size = (field.len() + rest.len()) as u64;
            if size != directory.record.size() {
                let place = Place::Inode { ino: directory.ino };
                directory.run.add(place, Fault::Size { size: directory.record.size(), last: None });
            }
            check_part(directory, rest, &mut names);
        }
        None => {
            let what = Fault::Attributes(lanefs_ondisk::xattr::Cause::NoEnd);
            directory.run.add(Place::Attributes { ino: directory.ino, block: None }, what);
        }
    }
    names.sort_unstable();
    for pair in names.windows(2) {
        if let [(one, _), (other, place)] = pair
            && one == other
        {
            directory.run.add(*place, Fault::DuplicateName);
        }
    }
}

/// Checks the entries of a part of the directory. Adds the forms of their names, which are equal
/// for equal names, with their places.
fn check_part(directory: &mut Directory<'_>, bytes: &[u8], names: &mut Vec<(Vec<u8>, Place)>) {
    let place = Place::Directory { ino: directory.ino, block: FileBlock(0) };
    let mut at = 0;
    while at < bytes.len() {
        let Some(entry) = entry(bytes, at) else {
            let rec_len = le16(bytes, at + 4).into();
            let cause = Cause::RecordTooShort { offset: at, rec_len };
            return directory.run.add(place, Fault::Dirent(cause));
        };
        if let Some(ino) = entry.ino {
            let place =
                Place::Entry { ino: directory.ino, block: FileBlock(0), offset: entry.offset };
            let is_valid = !entry.name.is_empty() && !entry.name.iter().any(|b| b"/\0".contains(b));
            if !is_valid {
                let cause = Cause::NameByte { offset: at };
                return directory.run.add(place, Fault::Dirent(cause));
            }
            names.push((directory.folding().form(entry.name).into_owned(), place));
            check_entry(directory, place, bytes, &entry, ino);
        }
        at += entry.rec_len;
    }
}

/// Returns the names of an inline directory, with their targets.
pub fn names(run: &Run<'_>, record: &Record, bytes: &[u8]) -> Vec<(Vec<u8>, Ino)> {
    let first = record.block.get(PARENT..).unwrap_or_default();
    let rest = attributes::inline_data(run, record, bytes).unwrap_or_default();
    let mut names = Vec::new();
    for part in [first, rest] {
        let mut at = 0;
        while let Some(entry) = entry(part, at) {
            names.extend(entry.ino.map(|ino| (entry.name.to_vec(), ino)));
            at += entry.rec_len;
        }
    }
    names
}

fn entry(bytes: &[u8], at: usize) -> Option<Entry<'_>> {
    let head = part(bytes, at, HEADER)?;
    let rec_len = usize::from(le16(head, 4));
    let name_len = usize::from(*head.get(6)?);
    let name = part(bytes, at + HEADER, name_len)?;
    let left = bytes.len() - at;
    let is_valid = rec_len >= MIN_RECORD
        && rec_len.is_multiple_of(4)
        && rec_len >= space(name_len)
        && rec_len <= left;
    let ino = le32(head, 0);
    is_valid.then(|| Entry {
        offset: at,
        rec_len,
        ino: (ino != 0).then_some(Ino(ino)),
        file_type: FileType::from_dirent(*head.get(7).unwrap_or(&0)),
        name,
    })
}
