//! A directory of the host as a source.

use crate::entry::{Kind, Meta};
use crate::error::{Cause, Error, Result};
use crate::host_file::HostFile;
use crate::pipeline::Feeder;
use crate::short_path::ShortPath;
use crate::tree::{NodeId, Over, Tree};
use lanefs_ondisk::{FileType, Time};
use rustix::fs::{AtFlags, CWD, SeekFrom, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Copies a directory's contents, and its own attributes, to the root of the tree.
pub(crate) fn directory(path: &Path, tree: &mut Tree, feeder: &mut Feeder<'_, '_>) -> Result<()> {
    // `path` may be a symbolic link to the directory.
    let path = path.canonicalize().map_err(|error| wrong(path, error))?;
    let stat = lstat(&path)?;
    let root = owned(tree, &path, &stat)?;
    tree.set_meta(Tree::ROOT, root);
    let mut walk = Walk { tree, feeder, linked: HashMap::new() };
    walk.directory(path, Tree::ROOT)?;
    feeder.send()
}

/// Returns how many bytes of data [`directory`] reads. Stops and returns `None` as soon as
/// `goes_on` returns false.
pub(crate) fn measure(path: &Path, goes_on: &dyn Fn() -> bool) -> Option<u64> {
    let (mut sum, mut linked) = (0u64, HashSet::new());
    let mut waiting = vec![path.to_path_buf()];
    while let Some(path) = waiting.pop() {
        // A directory that cannot be read counts as empty here, because the build itself reports
        // it.
        for name in names(&path).unwrap_or_default() {
            if !goes_on() {
                return None;
            }
            let path = path.join(OsStr::from_bytes(&name));
            let Ok(stat) = lstat(&path) else { continue };
            match FileType::from_mode((stat.st_mode & 0xffff) as u16) {
                Some(FileType::Directory) => waiting.push(path),
                Some(FileType::Regular)
                    if stat.st_nlink < 2 || linked.insert((stat.st_dev, stat.st_ino)) =>
                {
                    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
                    sum += allocated.min(u64::try_from(stat.st_size).unwrap_or(0));
                }
                _ => {}
            }
        }
    }
    Some(sum)
}

struct Walk<'w, 'p, 'd> {
    tree: &'w mut Tree,
    feeder: &'w mut Feeder<'p, 'd>,
    /// Files that have several names, by device and inode.
    linked: HashMap<(u64, u64), NodeId>,
}

impl Walk<'_, '_, '_> {
    /// Copies the entries of a directory in the order of the tree, in which a directory and
    /// everything below it come before the next name.
    fn directory(&mut self, path: PathBuf, into: NodeId) -> Result<()> {
        let mut open = vec![(into, names(&path)?.into_iter())];
        // The path of the last open directory, or of an entry in it.
        let mut path = path;
        while let Some((into, rest)) = open.last_mut() {
            let Some(name) = rest.next() else {
                open.pop();
                path.pop();
                continue;
            };
            let into = *into;
            path.push(OsStr::from_bytes(&name));
            let stat = lstat(&path)?;
            let kind = FileType::from_mode((stat.st_mode & 0xffff) as u16);
            if kind == Some(FileType::Directory) {
                let meta = owned(self.tree, &path, &stat)?;
                let made = self.tree.make_directory(into, &name, meta)?;
                open.push((made, names(&path)?.into_iter()));
            } else {
                self.file(&path, &stat, kind, into, &name)?;
                path.pop();
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        path: &Path,
        stat: &Stat,
        kind: Option<FileType>,
        into: NodeId,
        name: &[u8],
    ) -> Result<()> {
        let identity = (stat.st_dev, stat.st_ino);
        let here = |error: Error| Error { place: path.display().to_string(), ..error };
        if stat.st_nlink > 1
            && let Some(known) = self.linked.get(&identity)
        {
            return self.tree.link(*known, into, name, Over::Files).map_err(here);
        }
        let meta = owned(self.tree, path, stat)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let made = match kind {
            Some(FileType::Regular) => Kind::Regular(size),
            Some(FileType::Symlink) => {
                let read = ShortPath::new(path).and_then(|path| path.read_link());
                let target = read.map_err(|error| wrong(path, error))?;
                Kind::Symlink(target.into_os_string().into_vec().into())
            }
            Some(kind @ (FileType::CharDevice | FileType::BlockDevice)) => {
                Kind::Device(kind, device.0, device.1)
            }
            Some(kind) => Kind::Empty(kind),
            None => {
                let what = format!("a file of mode {:o}", stat.st_mode);
                return Err(Error::new(path.display(), Cause::Unsupported { what }));
            }
        };
        let node = self.tree.make_file(into, name, meta, made, Over::Files).map_err(here)?;
        if stat.st_nlink > 1 {
            self.linked.insert(identity, node);
        }
        match kind == Some(FileType::Regular) && size > 0 {
            true => self.data(path, stat, node, size),
            false => Ok(()),
        }
    }

    fn data(&mut self, path: &Path, stat: &Stat, node: NodeId, size: u64) -> Result<()> {
        let block = self.feeder.block_size();
        let allocated = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        let from = Arc::new(HostFile::new(path.into()));
        if allocated >= size {
            return self.feeder.host_data(node, &from, 0, size);
        }
        let file = from.open()?;
        let seek = |to| match rustix::fs::seek(&file, to) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            // The file system of the host cannot report holes, so the whole file is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(match to {
                SeekFrom::Data(from) => Some(from),
                _ => Some(size),
            }),
            Err(error) => Err(wrong(path, error.into())),
        };
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < size
            && let Some(start) = seek(SeekFrom::Data(at))?
        {
            let end = seek(SeekFrom::Hole(start))?.unwrap_or(size).min(size);
            let start = (start / block * block).max(at);
            let end = end.next_multiple_of(block).min(size);
            if start >= end {
                break;
            }
            pieces.push((start, end - start));
            at = end.next_multiple_of(block);
        }
        pieces
            .into_iter()
            .try_for_each(|(start, len)| self.feeder.host_data(node, &from, start, len))
    }
}

fn wrong(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Error::new(path.display(), Cause::Unreadable),
        _ => Error::new(path.display(), error),
    }
}

fn names(path: &Path) -> Result<Vec<Vec<u8>>> {
    let read = || -> std::io::Result<Vec<Vec<u8>>> {
        let entries = ShortPath::new(path)?.read_dir()?;
        entries.map(|entry| Ok(entry?.file_name().into_vec())).collect()
    };
    let mut names = read().map_err(|error| wrong(path, error))?;
    // The names are sorted, because the order in which the host lists them varies.
    names.sort_unstable();
    Ok(names)
}

fn lstat(path: &Path) -> Result<Stat> {
    let stat =
        |path: ShortPath<'_>| Ok(rustix::fs::statat(CWD, &*path, AtFlags::SYMLINK_NOFOLLOW)?);
    ShortPath::new(path).and_then(stat).map_err(|error| wrong(path, error))
}

/// Returns the attributes of a file, with the owner that [`Tree::owned`] gives it.
fn owned(tree: &Tree, path: &Path, stat: &Stat) -> Result<Meta> {
    let here = |error: Error| Error { place: path.display().to_string(), ..error };
    tree.owned(meta(path, stat)?).map_err(here)
}

fn meta(path: &Path, stat: &Stat) -> Result<Meta> {
    let mut meta = Meta {
        permissions: (stat.st_mode & 0o7777) as u16,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        atime: Some(time(stat.st_atime, stat.st_atime_nsec)),
        ctime: Some(time(stat.st_ctime, stat.st_ctime_nsec)),
        crtime: None,
        attributes: Vec::new(),
    };
    let short = ShortPath::new(path).map_err(|error| wrong(path, error))?;
    let names = attribute_names(&short).map_err(|error| wrong(path, error.into()))?;
    for name in names {
        let mut value = vec![0; 64 << 10];
        match rustix::fs::lgetxattr(&*short, name.as_slice(), &mut value) {
            Ok(len) => {
                value.truncate(len);
                meta.set_attribute(&name, value);
            }
            // Attributes that the calling user may not read are left out.
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(error) => return Err(wrong(path, error.into())),
        }
    }
    Ok(meta)
}

fn time(secs: i64, nanos: impl TryInto<u32>) -> Time {
    Time { secs, nanos: nanos.try_into().unwrap_or(0) }
}

fn attribute_names(path: &Path) -> std::result::Result<Vec<Vec<u8>>, Errno> {
    let mut list = vec![0u8; 1024];
    loop {
        match rustix::fs::llistxattr(path, &mut list) {
            Ok(len) => {
                let names = list.get(..len).unwrap_or_default().split(|byte| *byte == 0);
                return Ok(names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect());
            }
            Err(Errno::RANGE) if list.len() < 64 << 10 => list.resize(64 << 10, 0),
            Err(Errno::OPNOTSUPP | Errno::PERM) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
    }
}
