//! Checks the entries of one block of a directory.

use super::directory::Directory;
use super::dots::{check_dot, check_dot_dot};
use super::index::Leaf;
use crate::fault::{Fault, TargetFault};
use crate::place::Place;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::dirent::{self, Cause, Entry};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileBlock, FileType, Ino};

/// The shortest name of a file in an encrypted directory.
const SHORTEST_ENCRYPTED: usize = 16;

/// Checks all entries of a linear block or of a leaf of an index.
pub(super) fn check(
    directory: &mut Directory<'_>,
    block: FileBlock,
    bytes: &[u8],
    leaf: Option<Leaf>,
) {
    let place = Place::Directory { ino: directory.ino, block };
    let entries = match dirent::entries(&directory.format, bytes) {
        Ok(entries) => entries,
        Err(cause) => return directory.run.add(place, Fault::Dirent(cause)),
    };
    let folding = directory.folding();
    let mut names = Vec::with_capacity(bytes.len() / 24);
    for (n, entry) in entries.enumerate() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(cause) => return directory.run.add(place, Fault::Dirent(cause)),
        };
        // In a directory that ignores case, other spellings can be equal to "." or "..", so the
        // search for equal names includes "." and "..".
        if block.0 == 0 && n < 2 && folding != Folding::None {
            names.push((key(entry.name), entry.offset));
        }
        match (block.0, n) {
            (0, 0) => check_dot(directory, bytes, &entry),
            (0, 1) => check_dot_dot(directory, bytes, &entry),
            _ => {
                if let Some(ino) = entry.ino {
                    let place = Place::Entry { ino: directory.ino, block, offset: entry.offset };
                    check_entry(directory, place, bytes, &entry, ino);
                    names.push((key(&folding.form(entry.name)), entry.offset));
                    check_hash(directory, place, &entry, leaf.as_ref());
                }
            }
        }
    }
    check_twice(directory, block, bytes, names);
}

/// Checks an entry other than the first two, which are "." and "..".
pub(super) fn check_entry(
    directory: &mut Directory<'_>,
    place: Place,
    bytes: &[u8],
    entry: &Entry<'_>,
    ino: Ino,
) {
    let run = directory.run;
    directory.entries += 1;
    if entry.is_dot() {
        let offset = entry.offset;
        return run.add(place, Fault::Dirent(Cause::MisplacedDot { offset }));
    }
    let is_encrypted = directory.record.flags.contains(InodeFlags::ENCRYPT);
    if is_encrypted && entry.name.len() < SHORTEST_ENCRYPTED {
        run.add(place, Fault::Encoding);
    }
    if !directory.folding().permits(entry.name) {
        run.add(place, Fault::NotUtf8);
    }
    if let Err(why) = check_target(directory, ino) {
        return run.add(place, Fault::BadTarget { target: ino.0, why });
    }
    directory.check_type(place, bytes, entry, ino);
    if !directory.policy.permits(run, ino) {
        run.add(place, Fault::ForeignPolicy { target: ino });
    }
    directory.count_target(ino);
    if run.states.get(ino).file_type() == Some(FileType::Directory) {
        if run.states.set_name(ino) {
            run.add(place, Fault::SecondName { target: ino });
        }
        directory.parents.set_parent(ino, directory.ino);
        if directory.ino == Ino::ROOT && entry.name == b"lost+found" {
            directory.parents.set_lost_and_found();
        }
    }
}

fn check_target(directory: &Directory<'_>, ino: Ino) -> Result<(), TargetFault> {
    let geometry = &directory.run.volume.geometry;
    if ino == Ino::ROOT {
        return Err(TargetFault::Root);
    }
    if ino < geometry.first_ino() || !geometry.has_inode(ino) {
        return Err(TargetFault::Number);
    }
    let state = directory.run.states.get(ino);
    if !state.is_scanned() {
        return Err(TargetFault::Uninitialised);
    }
    state.is_used().then_some(()).ok_or(TargetFault::Free)
}

fn check_hash(directory: &Directory<'_>, place: Place, entry: &Entry<'_>, leaf: Option<&Leaf>) {
    let Some(leaf) = leaf else { return };
    let hash = leaf.hasher.hash(entry.name).major;
    if hash < leaf.least || hash > leaf.most {
        let cause =
            lanefs_ondisk::htree::Cause::HashRange { leaf: leaf.block, offset: entry.offset, hash };
        directory.run.add(place, Fault::Index(cause));
    }
}

/// Returns a number that is equal for equal names.
fn key(name: &[u8]) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |key: u64, word: u64| (key ^ word).wrapping_mul(PRIME).rotate_left(29);
    let (words, rest) = name.as_chunks();
    let key = words.iter().fold(name.len() as u64, |key, word| mix(key, u64::from_le_bytes(*word)));
    rest.iter().fold(key, |key, byte| mix(key, u64::from(*byte) + 1))
}

/// Reports names that occur twice in the block.
fn check_twice(
    directory: &Directory<'_>,
    block: FileBlock,
    bytes: &[u8],
    mut names: Vec<(u64, usize)>,
) {
    names.sort_unstable();
    let folding = directory.folding();
    let name = |offset: usize| {
        let entry = dirent::entry_at(&directory.format, bytes, offset).ok();
        entry.map(|entry| folding.form(entry.name))
    };
    for pair in names.windows(2) {
        if let [(key, one), (other_key, other)] = pair
            && key == other_key
            && name(*one) == name(*other)
        {
            let place = Place::Entry { ino: directory.ino, block, offset: *other };
            directory.run.add(place, Fault::DuplicateName);
        }
    }
}
