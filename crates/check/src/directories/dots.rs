//! Checks "." and "..", the first two entries of a directory.

use super::directory::Directory;
use crate::fault::Fault;
use crate::place::Place;
use lanefs_ondisk::dirent::{self, Cause, Entry, MIN_RECORD};
use lanefs_ondisk::{FileBlock, Ino};

/// Checks the two entries in the root of an index. The root has no other entries.
pub(super) fn check_root(directory: &mut Directory<'_>, bytes: &[u8]) {
    match dirent::dots(&directory.format, bytes) {
        Ok((dot, dot_dot)) => {
            check_dot(directory, bytes, &dot);
            check_dot_dot(directory, bytes, &dot_dot);
        }
        Err(cause) => {
            let place = Place::Directory { ino: directory.ino, block: FileBlock(0) };
            directory.run.add(place, Fault::Dirent(cause));
        }
    }
}

fn place(directory: &Directory<'_>, entry: &Entry<'_>) -> Place {
    Place::Entry { ino: directory.ino, block: FileBlock(0), offset: entry.offset }
}

/// Checks the first entry, ".", which refers to the directory itself.
pub(super) fn check_dot(directory: &mut Directory<'_>, bytes: &[u8], entry: &Entry<'_>) {
    let place = place(directory, entry);
    let Some(ino) = entry.ino.filter(|_| entry.name == b".") else {
        return directory.run.add(place, Fault::Dirent(Cause::NoDots));
    };
    if ino != directory.ino {
        let why = crate::fault::TargetFault::Number;
        directory.run.add(place, Fault::BadTarget { target: ino.0, why });
    }
    check_end(directory, place, bytes, entry, ".");
    if entry.rec_len > 2 * MIN_RECORD {
        directory.run.add(place, Fault::DotBytes { name: "." });
    }
    directory.check_type(place, bytes, entry, ino);
    directory.count_target(ino);
}

/// Checks the second entry, "..", which refers to the parent.
pub(super) fn check_dot_dot(directory: &mut Directory<'_>, bytes: &[u8], entry: &Entry<'_>) {
    let place = place(directory, entry);
    let Some(ino) = entry.ino.filter(|_| entry.name == b"..") else {
        return directory.run.add(place, Fault::Dirent(Cause::NoDots));
    };
    check_end(directory, place, bytes, entry, "..");
    directory.check_type(place, bytes, entry, ino);
    parent(directory, ino);
}

/// Records the parent to which ".." refers. The entry ".." may be in a block of entries, in an
/// index root or in the inode.
pub(super) fn parent(directory: &mut Directory<'_>, ino: Ino) {
    directory.parents.set_dot_dot(directory.ino, ino);
    directory.count_target(ino);
}

/// Checks that a NUL follows the name.
fn check_end(
    directory: &Directory<'_>,
    place: Place,
    bytes: &[u8],
    entry: &Entry<'_>,
    name: &'static str,
) {
    let end = entry.offset + dirent::HEADER + name.len();
    if bytes.get(end).is_some_and(|byte| *byte != 0) {
        directory.run.add(place, Fault::DotBytes { name });
    }
}
