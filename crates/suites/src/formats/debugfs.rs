//! Compares the tree that debugfs shows for an image with the tree that Lanefs shows.

use crate::image::{Image, folder};
use crate::listing::{Digest, Entry, GRAIN, Listing};
use crate::op::{Path, join, show};
use lanefs_ondisk::FileType;
use std::collections::BTreeMap;
use std::process::Command;

/// The size in bytes of the largest file whose bytes are compared. Larger files are left out,
/// because debugfs writes out holes as zeros.
pub(crate) const LARGEST: u64 = 4 << 20;

/// What debugfs prints before the output of each request.
const PROMPT: &[u8] = b"debugfs: ";

/// What debugfs shows for a name in a directory.
pub(crate) struct Shown {
    pub(crate) ino: u64,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: Option<u64>,
}

/// Compares the tree that debugfs shows with `seen`, and describes the differences. The comparison
/// covers names, inode numbers, modes, owners, sizes, and the bytes of regular files of at most
/// [`LARGEST`] bytes.
pub(super) fn differences(image: &Image, seen: &Listing) -> Vec<String> {
    let dirs = seen.entries.iter().filter(|(_, entry)| is(entry, FileType::Directory));
    let shown = listed(image, dirs.clone().filter_map(|(_, entry)| entry.ino));
    let mut found = Vec::new();
    let mut known = 0;
    for (path, entry) in dirs {
        let names = entry.ino.and_then(|ino| shown.get(&ino)).map_or(&[][..], Vec::as_slice);
        known += names.len();
        for (name, shown) in names {
            let child = join(path, name);
            if !seen.entries.get(&child).is_some_and(|entry| shown.is(entry)) {
                found.push(format!("{}: inode {}", show(&child), shown.ino));
            }
        }
    }
    // debugfs must list each path except the root once.
    if known + 1 != seen.entries.len() {
        found.push(format!("{} names of {}", known + 1, seen.entries.len()));
    }
    found.extend(other_bytes(image, seen));
    found
}

fn is(entry: &Entry, kind: FileType) -> bool {
    FileType::from_mode(entry.mode) == Some(kind)
}

impl Shown {
    fn is(&self, entry: &Entry) -> bool {
        // debugfs shows no size for a directory.
        entry.ino == Some(self.ino)
            && entry.mode == self.mode
            && (entry.uid, entry.gid) == (self.uid, self.gid)
            && (self.size.is_none() || entry.size == self.size)
    }
}

/// Runs requests on an image, and returns their output.
fn run(image: &Image, requests: &str) -> Vec<u8> {
    let folder = folder();
    let script = folder.path().join("requests");
    std::fs::write(&script, requests).expect("the requests");
    let mut command = Command::new("debugfs");
    let output = command.arg("-f").arg(&script).arg(image.path()).output();
    output.expect("debugfs runs").stdout
}

/// Returns the names in each directory, by the directory's inode number, without `.` and `..`.
pub(crate) fn listed(
    image: &Image,
    dirs: impl Iterator<Item = u64>,
) -> BTreeMap<u64, Vec<(Path, Shown)>> {
    let requests: String = dirs.map(|ino| format!("ls -p <{ino}>\n")).collect();
    let output = run(image, &requests);
    let mut listed = BTreeMap::new();
    for answer in split_at(&output, PROMPT) {
        let Some(line) = answer.iter().position(|byte| *byte == b'\n') else { continue };
        let (request, names) = answer.split_at(line + 1);
        let ino = String::from_utf8_lossy(request);
        let ino = ino.trim().trim_start_matches("ls -p <").trim_end_matches('>').parse();
        listed.insert(ino.expect("the request"), names_in(names));
    }
    listed
}

/// Returns the names in the output of a request. A line is `/inode/mode/uid/gid/name/size/`. The
/// output is split at slashes, because a name can contain an end of line but no slash.
fn names_in(answer: &[u8]) -> Vec<(Path, Shown)> {
    let fields: Vec<&[u8]> = answer.split(|byte| *byte == b'/').collect();
    let mut names = Vec::new();
    for fields in fields.chunks_exact(7) {
        let [_, ino, mode, uid, gid, name, size] = fields else { continue };
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        // debugfs shows owners as signed numbers.
        let id = |field: &[u8]| text(field).parse::<i64>().expect("a number") as u32;
        let shown = Shown {
            ino: text(ino).parse().expect("a number"),
            mode: u16::from_str_radix(&text(mode), 8).expect("a mode"),
            uid: id(uid),
            gid: id(gid),
            size: text(size).parse().ok(),
        };
        // An unused entry has the inode number 0.
        if shown.ino != 0 && *name != b"." && *name != b".." {
            names.push((name.to_vec(), shown));
        }
    }
    names
}

fn split_at<'a>(bytes: &'a [u8], mark: &[u8]) -> Vec<&'a [u8]> {
    let starts = bytes.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark);
    let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    starts.iter().zip(ends).map(|(start, end)| &bytes[start + mark.len()..end]).collect()
}

/// Compares the bytes of regular files.
fn other_bytes(image: &Image, seen: &Listing) -> Vec<String> {
    let small = |entry: &Entry| is(entry, FileType::Regular) && entry.size <= Some(LARGEST);
    let files = seen.entries.iter().filter(|(_, entry)| small(entry));
    let files: BTreeMap<u64, _> =
        files.filter_map(|(path, entry)| Some((entry.ino?, (path, entry)))).collect();
    let mut found = Vec::new();
    let inos: Vec<u64> = files.keys().copied().collect();
    dumped(image, &inos, &mut |ino, mut bytes| {
        let (path, entry) = files[&ino];
        // debugfs dumps the whole inline data area, even the bytes after the end of the file.
        bytes.truncate(entry.size.unwrap_or_default() as usize);
        let mut digest = Digest::new(bytes.len() as u64);
        let grains = bytes.chunks(GRAIN).enumerate();
        grains.for_each(|(n, grain)| digest.grain((n * GRAIN) as u64, grain));
        if digest.end() != entry.content {
            found.push(format!("{}: other bytes", show(path)));
        }
    });
    found
}

/// Calls `each` with the bytes of each of these files. A file that debugfs does not dump is empty.
pub(crate) fn dumped(image: &Image, inos: &[u64], each: &mut dyn FnMut(u64, Vec<u8>)) {
    let folder = folder();
    let at = |ino: u64| folder.path().join(ino.to_string());
    let dump = |ino: &u64| format!("dump <{ino}> {}\n", at(*ino).display());
    run(image, &inos.iter().map(dump).collect::<String>());
    inos.iter().for_each(|ino| each(*ino, std::fs::read(at(*ino)).unwrap_or_default()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::both::{open, run_all};
    use crate::formats::exchange::seen_by_library;
    use crate::library::Library;
    use crate::op::{File, Kind, Op};

    #[test]
    fn another_name_mode_or_byte_is_found() {
        let Some(image) = Image::make("-b 1024 -O ^metadata_csum", "8M") else { return };
        let path = b"a".to_vec();
        let create = Op::Create { path, kind: Kind::Regular, permissions: 0o644, uid: 1, gid: 2 };
        let write = Op::Write { file: File::At(b"a".to_vec()), offset: 0, len: 3000, seed: 1 };
        let mount = open(&image);
        run_all(&mut Library::new(mount.fs()), "Lanefs", &[create, write]);
        mount.close().expect("closed");
        let seen = seen_by_library(&image);
        assert_eq!(differences(&image, &seen), Vec::<String>::new());
        let changed = |change: &dyn Fn(&mut Listing)| {
            let mut other = seen.clone();
            change(&mut other);
            differences(&image, &other).len()
        };
        let file = |listing: &mut Listing| listing.entries.remove(&b"a"[..]).expect("the file");
        let other = |listing: &mut Listing, name: &[u8], change: &dyn Fn(&mut Entry)| {
            let mut entry = file(listing);
            change(&mut entry);
            listing.entries.insert(name.to_vec(), entry);
        };
        assert_eq!(changed(&|listing| other(listing, b"b", &|_| ())), 1);
        assert_eq!(changed(&|listing| other(listing, b"a", &|entry| entry.mode ^= 1)), 1);
        assert_eq!(changed(&|listing| other(listing, b"a", &|entry| entry.gid = 3)), 1);
        assert_eq!(changed(&|listing| other(listing, b"a", &|entry| entry.content ^= 1)), 1);
        assert_eq!(changed(&|listing| drop(file(listing))), 2, "a name, and the count");
    }
}
