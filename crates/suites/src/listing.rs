//! A listing of everything visible in a tree, for comparison with another listing.

use crate::home;
use crate::op::{Path, join, show};
use lanefs_ext4::{Error, Fs, InodeRef, Seek};
use lanefs_ondisk::{FileType, Ino, Time};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::{ffi::OsStr, io};

/// The number of bytes that content digests treat as a unit. A unit of zeros adds nothing to a
/// digest, so it counts the same as a hole.
pub const GRAIN: usize = 4096;

/// The properties of the inode that a name refers to. If the source of the listing does not provide
/// a property, the property is `None` and is not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // as in stat(2)
pub struct Entry {
    pub mode: u16,
    pub links: Option<u32>,
    pub uid: u32,
    pub gid: u32,
    pub size: Option<u64>,
    pub rdev: (u32, u32),
    /// Digest of the data, or of the target of a symbolic link.
    pub content: u64,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path that leads to the same inode.
    pub twin: Path,
    pub ino: Option<u64>,
    pub sectors: Option<u64>,
    pub atime: Option<Time>,
    pub mtime: Option<Time>,
    pub ctime: Option<Time>,
    /// The data ranges that SEEK_DATA and SEEK_HOLE report.
    pub data: Option<Vec<(u64, u64)>>,
}

/// A tree, listed by path. The root has the empty path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries by path.
    pub entries: BTreeMap<Path, Entry>,
}

impl Listing {
    /// Sets `twin` in each entry. Paths to the same inode get the same twin.
    pub fn find_twins(&mut self, id_of: impl Fn(&[u8]) -> u64) {
        let mut first: BTreeMap<u64, Path> = BTreeMap::new();
        for (path, entry) in &mut self.entries {
            entry.twin = first.entry(id_of(path)).or_insert_with(|| path.clone()).clone();
        }
    }

    /// Returns the listing without the paths for which `keep` is false.
    pub fn filter(mut self, keep: impl Fn(&[u8]) -> bool) -> Listing {
        self.entries.retain(|path, _| keep(path));
        self
    }

    /// Returns the listing without properties that may differ between file systems with the same
    /// contents.
    pub fn content(mut self) -> Listing {
        self.entries.remove(&b"lost+found"[..]);
        for entry in self.entries.values_mut() {
            (entry.ino, entry.sectors, entry.ctime, entry.data) = (None, None, None, None);
            (entry.atime, entry.mtime) = (None, None);
            if entry.mode & 0xf000 == 0x4000 {
                entry.size = None;
            }
        }
        self
    }

    /// Describes the differences, at most twenty. The result is empty if there are none.
    pub fn differences(&self, other: &Listing) -> Vec<String> {
        let mut found = Vec::new();
        for (path, a) in &self.entries {
            match other.entries.get(path) {
                None => found.push(format!("{} is missing on the right", show(path))),
                Some(b) => a.compare(b, path, &mut found),
            }
        }
        let missing = other.entries.keys().filter(|path| !self.entries.contains_key(*path));
        found.extend(missing.map(|path| format!("{} is missing on the left", show(path))));
        found.truncate(20);
        found
    }

    /// Panics with the differences, if there are any.
    #[track_caller]
    pub fn assert_same(&self, other: &Listing, context: &str) {
        let found = self.differences(other);
        assert!(found.is_empty(), "{context}:\n  {}", found.join("\n  "));
    }
}

impl Entry {
    fn compare(&self, other: &Entry, path: &[u8], found: &mut Vec<String>) {
        let mut differ = |what: &str, a: String, b: String| {
            found.push(format!("{}: {what} {a} / {b}", show(path)));
        };
        macro_rules! same {
            ($($field:ident),*) => { $(
                if self.$field != other.$field {
                    differ(stringify!($field), format!("{:?}", self.$field), format!("{:?}", other.$field));
                }
            )* };
        }
        macro_rules! known {
            ($($field:ident),*) => { $(
                if let (Some(a), Some(b)) = (&self.$field, &other.$field) && a != b {
                    differ(stringify!($field), format!("{a:?}"), format!("{b:?}"));
                }
            )* };
        }
        if self.mode != other.mode {
            differ("mode", format!("{:o}", self.mode), format!("{:o}", other.mode));
        }
        same!(uid, gid, rdev, content, twin);
        known!(links, size, ino, sectors, atime, mtime, ctime, data);
        if self.xattrs != other.xattrs {
            let brief = |xattrs: &BTreeMap<Vec<u8>, Vec<u8>>| {
                let each = xattrs.iter().map(|(n, v)| format!("{}={}", show(n), v.len()));
                each.collect::<Vec<_>>().join(" ")
            };
            differ("xattrs", brief(&self.xattrs), brief(&other.xattrs));
        }
    }
}

/// The digest of a file's data. It covers the size of the file, and the position and the bytes of
/// every grain, except grains of zeros.
pub struct Digest(DefaultHasher);

impl Digest {
    /// Starts the digest of a file of `size` bytes.
    pub fn new(size: u64) -> Digest {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(size);
        Digest(hasher)
    }

    /// Adds the grain at `offset`. The last grain of a file may be shorter than [`GRAIN`].
    pub fn grain(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.iter().any(|b| *b != 0) {
            self.0.write_u64(offset);
            self.0.write(bytes);
        }
    }

    /// Returns the digest.
    pub fn end(self) -> u64 {
        self.0.finish()
    }
}

/// Returns the digest of a symbolic link's target.
pub fn digest_target(target: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(target);
    hasher.finish()
}

/// Returns a digest of all grains that overlap `ranges`.
fn digest_ranges<E>(
    size: u64,
    ranges: &[(u64, u64)],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let mut digest = Digest::new(size);
    let mut next = 0;
    let mut buffer = vec![0; 64 * GRAIN];
    for &(start, end) in ranges {
        let mut at = (start / GRAIN as u64 * GRAIN as u64).max(next);
        let end = end.next_multiple_of(GRAIN as u64).min(size);
        while at < end {
            let n = (end - at).min(buffer.len() as u64) as usize;
            read(at, &mut buffer[..n])?;
            for (i, grain) in buffer[..n].chunks(GRAIN).enumerate() {
                digest.grain(at + (i * GRAIN) as u64, grain);
            }
            at += n as u64;
        }
        next = next.max(at);
    }
    Ok(digest.end())
}

/// Returns the tree that the library shows in the directory of [`home`]. On failure, returns the
/// error with the path where it occurred.
pub fn of_library(fs: &Fs) -> Result<Listing, (Path, Error)> {
    walk_library(fs, library_entry)
}

/// Works like [`of_library`], but leaves out the contents of files, so that digests are 0.
pub fn shape_of_library(fs: &Fs) -> Result<Listing, (Path, Error)> {
    walk_library(fs, library_shape)
}

fn walk_library(
    fs: &Fs,
    entry: impl Fn(&Fs, &InodeRef) -> Result<Entry, Error>,
) -> Result<Listing, (Path, Error)> {
    let mut listing = Listing::default();
    let mut todo = vec![(Vec::new(), home::of_library(fs).map_err(|e| (Vec::new(), e))?)];
    while let Some((path, inode)) = todo.pop() {
        let at = |error| (path.clone(), error);
        listing.entries.insert(path.clone(), entry(fs, &inode).map_err(at)?);
        if inode.file_type() != FileType::Directory {
            continue;
        }
        for (name, ino) in library_names(fs, &inode).map_err(at)? {
            let child = join(&path, &name);
            let inode = fs.get(ino, None).map_err(|error| (child.clone(), error))?;
            todo.push((child, inode));
        }
    }
    let inos: BTreeMap<Path, u64> =
        listing.entries.iter().map(|(path, e)| (path.clone(), e.ino.unwrap_or(0))).collect();
    listing.find_twins(|path| inos[path]);
    Ok(listing)
}

/// Returns the names in a directory, without `.` and `..`.
pub fn library_names(fs: &Fs, dir: &InodeRef) -> Result<Vec<(Vec<u8>, Ino)>, Error> {
    let mut names = Vec::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

/// Returns the entry that the library shows for an inode.
pub fn library_entry(fs: &Fs, inode: &InodeRef) -> Result<Entry, Error> {
    let mut entry = library_shape(fs, inode)?;
    match inode.file_type() {
        FileType::Regular => {
            let size = inode.attr().size;
            let ranges = library_data(fs, inode, size)?;
            let read = |at, buf: &mut [u8]| {
                let len = fs.read_at(inode, at, buf)?;
                assert_eq!(len, buf.len(), "a read inside the file came back short");
                Ok::<(), Error>(())
            };
            entry.content = digest_ranges(size, &ranges, read)?;
            entry.data = Some(ranges);
        }
        FileType::Symlink => entry.content = digest_target(&fs.read_link(inode)?),
        _ => {}
    }
    Ok(entry)
}

/// Works like [`library_entry`], but leaves out the contents.
fn library_shape(fs: &Fs, inode: &InodeRef) -> Result<Entry, Error> {
    let attr = fs.stat(inode);
    let mut xattrs = BTreeMap::new();
    for name in fs.list_xattr(inode)? {
        let value = fs.get_xattr(inode, &name)?;
        xattrs.insert(name, value);
    }
    Ok(Entry {
        mode: attr.mode(),
        links: Some(attr.links),
        uid: attr.uid,
        gid: attr.gid,
        size: Some(attr.size),
        rdev: (attr.rdev.major, attr.rdev.minor),
        content: 0,
        xattrs,
        twin: Path::new(),
        ino: Some(attr.ino.0.into()),
        sectors: Some(attr.sectors),
        atime: Some(attr.atime),
        mtime: Some(attr.mtime),
        ctime: Some(attr.ctime),
        data: None,
    })
}

fn library_data(fs: &Fs, inode: &InodeRef, size: u64) -> Result<Vec<(u64, u64)>, Error> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match fs.seek(inode, Seek::Data, at) {
            Ok(start) => start,
            Err(Error::NoSuchOffset) => break,
            Err(error) => return Err(error),
        };
        let end = fs.seek(inode, Seek::Hole, start)?;
        assert!(start >= at && end > start, "SEEK_DATA and SEEK_HOLE contradict");
        ranges.push((start, end));
        at = end;
    }
    Ok(ranges)
}

/// Returns the tree below `root` that the kernel shows.
pub fn of_kernel(root: &std::path::Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    let mut todo = vec![Path::new()];
    while let Some(path) = todo.pop() {
        let host = root.join(OsStr::from_bytes(&path));
        let entry = kernel_entry(&host)?;
        let is_dir = FileType::from_mode(entry.mode) == Some(FileType::Directory);
        listing.entries.insert(path.clone(), entry);
        if is_dir {
            for name in std::fs::read_dir(&host)? {
                todo.push(join(&path, &name?.file_name().into_vec()));
            }
        }
    }
    let inos: BTreeMap<Path, u64> =
        listing.entries.iter().map(|(path, e)| (path.clone(), e.ino.unwrap_or(0))).collect();
    listing.find_twins(|path| inos[path]);
    Ok(listing)
}

fn kernel_entry(host: &std::path::Path) -> io::Result<Entry> {
    let meta = std::fs::symlink_metadata(host)?;
    let mode = meta.mode() as u16;
    let mut data = None;
    let content = match FileType::from_mode(mode) {
        Some(FileType::Regular) => {
            let file = std::fs::File::open(host)?;
            let ranges = kernel_data(&file, meta.len())?;
            let digest = digest_ranges(meta.len(), &ranges, |at, buf| file.read_exact_at(buf, at))?;
            data = Some(ranges);
            digest
        }
        Some(FileType::Symlink) => digest_target(std::fs::read_link(host)?.as_os_str().as_bytes()),
        _ => 0,
    };
    let time = |secs, nanos| Some(Time { secs, nanos: nanos as u32 });
    let rdev = meta.rdev();
    Ok(Entry {
        mode,
        links: Some(meta.nlink() as u32),
        uid: meta.uid(),
        gid: meta.gid(),
        size: Some(meta.len()),
        rdev: (rustix::fs::major(rdev), rustix::fs::minor(rdev)),
        content,
        xattrs: kernel_xattrs(host)?,
        twin: Path::new(),
        ino: Some(meta.ino()),
        sectors: Some(meta.blocks()),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        data,
    })
}

fn kernel_data(file: &std::fs::File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?;
        ranges.push((start, end));
        at = end;
    }
    Ok(ranges)
}

fn kernel_xattrs(host: &std::path::Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; 64 << 10];
    let n = match rustix::fs::llistxattr(host, &mut names[..]) {
        Ok(n) => n,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut xattrs = BTreeMap::new();
    for name in names[..n].split(|b| *b == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(host, name, &mut value[..])?;
        value.truncate(len);
        xattrs.insert(name.to_vec(), value);
    }
    Ok(xattrs)
}
