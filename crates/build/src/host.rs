//! A directory of the host as a source.

use crate::entry::{Kind, Meta};
use crate::error::{Cause, Error, Result};
use crate::host_file::HostFile;
use crate::pipeline::Feeder;
use crate::short_path::ShortPath;
use crate::tree::{NodeId, Over, Tree};
use crate::view::{Claim, HostView, Special, Unreadable, is_claim, is_label_of_host};
use lanefs_device::data_after;
use lanefs_ondisk::{FileType, Time};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Copies a directory's contents, and its own attributes, to the root of the tree.
pub(crate) fn directory(
    path: &Path,
    view: &HostView,
    tree: &mut Tree,
    feeder: &mut Feeder<'_, '_>,
) -> Result<()> {
    // `path` may be a symbolic link to the directory.
    let path = path.canonicalize().map_err(|error| wrong(path, error))?;
    let stat = lstat(&path)?;
    let root = owned(tree, view, &path, &stat)?.0;
    tree.set_meta(Tree::ROOT, root);
    let mut walk = Walk { tree, view, feeder, linked: HashMap::new() };
    walk.directory(path, Tree::ROOT)?;
    feeder.send()
}

/// The largest number of files that an error names.
const MOST_NAMED: usize = 100;

/// Adds the names of other files that cannot be read to the error of one of them, and how many
/// there are beyond [`MOST_NAMED`].
pub(crate) fn name_all_unreadable(top: &Path, error: Error) -> Error {
    if !is_denied(&error) {
        return error;
    }
    let (mut waiting, mut denied, mut more) = (vec![top.to_path_buf()], Vec::new(), 0);
    while let Some(path) = waiting.pop() {
        let opened = match lstat(&path) {
            Ok(stat) if stat.is_dir() => names(&path).map(|names| {
                let below = names.iter().rev().map(|name| path.join(OsStr::from_bytes(name)));
                waiting.extend(below);
            }),
            Ok(stat) if stat.is_file() => HostFile { path: path.clone() }.open().map(drop),
            found => found.map(drop),
        };
        if opened.is_err_and(|error| is_denied(&error)) {
            match denied.len() < MOST_NAMED {
                true => denied.push(path.display().to_string()),
                false => more += 1,
            }
        }
    }
    let further = if more > 0 { format!(" and {more} more") } else { String::new() };
    match denied.is_empty() {
        true => error,
        false => Error { place: denied.join(", ") + &further, cause: Cause::Unreadable },
    }
}

fn is_denied(error: &Error) -> bool {
    match &error.cause {
        Cause::Attribute { source, .. } => source.kind() == ErrorKind::PermissionDenied,
        Cause::Unreadable => true,
        _ => false,
    }
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
            match FileType::from_mode((stat.mode() & 0xffff) as u16) {
                Some(FileType::Directory) => waiting.push(path),
                Some(FileType::Regular)
                    if stat.nlink() < 2 || linked.insert((stat.dev(), stat.ino())) =>
                {
                    sum += stat.size().min(stat.blocks().saturating_mul(512));
                }
                _ => {}
            }
        }
    }
    Some(sum)
}

struct Walk<'w, 'p, 'd> {
    tree: &'w mut Tree,
    view: &'w HostView,
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
            let Some(stat) = self.unless_denied(lstat(&path))? else {
                path.pop();
                continue;
            };
            let kind = FileType::from_mode((stat.mode() & 0xffff) as u16);
            if kind == Some(FileType::Directory) {
                let (meta, claimed) = owned(self.tree, self.view, &path, &stat)?;
                refuse_type(&path, claimed, FileType::Directory)?;
                let made = self.tree.make_directory(into, &name, meta)?;
                let names = self.unless_denied(names(&path))?.unwrap_or_default();
                open.push((made, names.into_iter()));
            } else {
                self.file(&path, &stat, kind, into, &name)?;
                path.pop();
            }
        }
        Ok(())
    }

    /// Returns what was read. Returns `None`, and notes the loss, if the host denies it and such
    /// files are left out.
    fn unless_denied<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(error) if self.view.unreadable == Unreadable::Skip && is_denied(&error) => {
                self.tree.losses.push(error.to_string());
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    fn file(
        &mut self,
        path: &Path,
        stat: &Metadata,
        kind: Option<FileType>,
        into: NodeId,
        name: &[u8],
    ) -> Result<()> {
        let identity = (stat.dev(), stat.ino());
        let here = |error: Error| Error { place: path.display().to_string(), ..error };
        if stat.nlink() > 1
            && let Some(known) = self.linked.get(&identity)
        {
            return self.tree.link(*known, into, name, Over::Files).map_err(here);
        }
        let is_read = kind == Some(FileType::Regular) && stat.size() > 0;
        if is_read && self.view.unreadable == Unreadable::Skip {
            let opened = HostFile { path: path.into() }.open();
            if self.unless_denied(opened)?.is_none() {
                return Ok(());
            }
        }
        let (meta, claimed) = owned(self.tree, self.view, path, stat)?;
        let size = stat.size();
        let mut device = (rustix::fs::major(stat.rdev()), rustix::fs::minor(stat.rdev()));
        let mut kind = kind;
        if let Some((is, major, minor)) = claimed.filter(|(is, ..)| Some(*is) != kind) {
            // The host has an empty file in the place of a device, a pipe or a socket.
            let may_be = kind == Some(FileType::Regular) && size == 0;
            let (link, directory) = (FileType::Symlink, FileType::Directory);
            if !may_be || is == link || is == directory {
                return Err(wrong_type(path, is));
            }
            (kind, device) = (Some(is), (major, minor));
        }
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
                let what = format!("a file of mode {:o}", stat.mode());
                return Err(Error::new(path.display(), Cause::Unsupported { what }));
            }
        };
        let node = self.tree.make_file(into, name, meta, made, Over::Files).map_err(here)?;
        if stat.nlink() > 1 {
            self.linked.insert(identity, node);
        }
        match kind == Some(FileType::Regular) && size > 0 {
            true => self.data(path, stat, node, size),
            false => Ok(()),
        }
    }

    fn data(&mut self, path: &Path, stat: &Metadata, node: NodeId, size: u64) -> Result<()> {
        let block = self.feeder.block_size();
        let from = Arc::new(HostFile { path: path.into() });
        if stat.blocks().saturating_mul(512) >= size {
            return self.feeder.host_data(node, &from, 0, size);
        }
        let file = from.open()?;
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < size
            && let Some((start, end)) =
                data_after(&file, at, size).map_err(|error| wrong(path, error))?
        {
            let start = (start / block * block).max(at);
            let end = end.min(size).next_multiple_of(block).min(size);
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
        ErrorKind::PermissionDenied => Error::new(path.display(), Cause::Unreadable),
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

/// Returns the attributes of a file, as the C library says: fakeroot(1) changes what it returns.
fn lstat(path: &Path) -> Result<Metadata> {
    let stat = ShortPath::new(path).and_then(|path| path.symlink_metadata());
    stat.map_err(|error| wrong(path, error))
}

fn refuse_type(path: &Path, claimed: Option<Special>, found: FileType) -> Result<()> {
    match claimed {
        Some((is, ..)) if is != found => Err(wrong_type(path, is)),
        _ => Ok(()),
    }
}

fn wrong_type(path: &Path, claimed: FileType) -> Error {
    let detail = format!("{claimed:?}, which the host's file cannot stand for");
    Error::new(path.display(), Cause::Invalid { what: "its claimed type", detail })
}

/// Returns the attributes of a file, with the owner that [`Tree::owned`] gives it, and the type
/// that it is claimed to have.
fn owned(
    tree: &mut Tree,
    view: &HostView,
    path: &Path,
    stat: &Metadata,
) -> Result<(Meta, Option<Special>)> {
    let here = |error: Error| Error { place: path.display().to_string(), ..error };
    let mut meta = Meta {
        permissions: (stat.mode() & 0o7777) as u16,
        uid: stat.uid(),
        gid: stat.gid(),
        mtime: time(stat.mtime(), stat.mtime_nsec()),
        atime: Some(time(stat.atime(), stat.atime_nsec())),
        ctime: Some(time(stat.ctime(), stat.ctime_nsec())),
        crtime: None,
        attributes: Vec::new(),
    };
    let short = ShortPath::new(path).map_err(|error| wrong(path, error))?;
    let listed = match xattr::list(&short) {
        Err(error)
            if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::PERM)) =>
        {
            None
        }
        listed => Some(listed.map_err(|error| wrong(path, error))?),
    };
    for name in listed.into_iter().flatten() {
        let bytes = name.as_bytes();
        let is_needed = view.override_stat && is_claim(bytes);
        match &tree.kept {
            None if is_label_of_host(bytes) => {
                tree.labels += 1;
                continue;
            }
            Some(kept) if !is_needed && !kept.keeps(bytes) => continue,
            _ => {}
        }
        match xattr::get(&short, &name) {
            Ok(Some(value)) => meta.set_attribute(bytes, value),
            Ok(None) => {} // removed meanwhile
            Err(source) => {
                let name = name.to_string_lossy().into_owned();
                let loss = here(Error::new("", Cause::Attribute { name, source }));
                match view.unreadable == Unreadable::Skip && is_denied(&loss) {
                    true => tree.losses.push(loss.to_string()),
                    false => tree.lose(loss)?,
                }
            }
        }
    }
    let mut claimed = None;
    if view.override_stat {
        claimed = Claim::take(&mut meta).map_err(here)?.apply(&mut meta);
    }
    let saved = view.fakeroot.as_ref().map(|state| state.of(stat.dev(), stat.ino()));
    if let Some((claim, is_known)) = saved {
        tree.has_claims |= is_known;
        claimed = claim.apply(&mut meta);
    }
    Ok((tree.owned(meta).map_err(here)?, claimed))
}

fn time(secs: i64, nanos: impl TryInto<u32>) -> Time {
    Time { secs, nanos: nanos.try_into().unwrap_or(0) }
}
