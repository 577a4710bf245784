//! Reading directories and trees.

use crate::error::{At, Cause, Error, Result};
use crate::filesystem::FileSystem;
use crate::metadata::Metadata;
use crate::mounted::Shared;
use lanefs_ext4::InodeRef;
use lanefs_ondisk::{FileType, Ino};
use lanefs_vfs::{Follow, OpenFile, OpenFlags};
use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of entries that are read at once. It bounds the memory that listing a large directory
/// needs.
const BATCH: usize = 1024;

/// An open directory, which its [`ReadDir`] and the entries share.
pub(crate) struct Dir {
    pub open: OpenFile,
    /// This field is declared after `open`, so that it is dropped after `open`.
    mounted: Shared,
    /// In a walk, the directory above, in which `name` was found. Otherwise `name` is a path.
    pub above: Option<Arc<Dir>>,
    pub name: PathBuf,
}

impl Dir {
    pub(crate) fn path(&self) -> PathBuf {
        let mut names = vec![&self.name];
        let mut at = self;
        while let Some(above) = &at.above {
            at = above;
            names.push(&at.name);
        }
        names.into_iter().rev().collect()
    }
}

/// Drops the directories above one after the other, since a tree may be deeper than the stack.
impl Drop for Dir {
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut dir) = above.and_then(Arc::into_inner) {
            above = dir.above.take();
        }
    }
}

/// An entry of a directory. Keeps its directory open, and so the file system mounted.
#[derive(Clone)]
pub struct DirEntry {
    pub(crate) dir: Arc<Dir>,
    name: OsString,
    ino: Ino,
    file_type: Option<FileType>,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }
    /// The path that was given to [`FileSystem::read_dir`], with the name.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }
    /// The inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }
    /// The file type; that of a symbolic link itself. It is read from the inode if the directory
    /// does not store it (feature `filetype`).
    pub fn file_type(&self) -> Result<FileType> {
        self.file_type.map_or_else(|| Ok(self.metadata()?.file_type()), Ok)
    }
    /// The metadata; that of a symbolic link itself, as with [`FileSystem::symlink_metadata`].
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(self.find()?.attr().into())
    }

    pub(crate) fn find(&self) -> Result<InodeRef> {
        let Dir { open, mounted, .. } = &*self.dir;
        let found = mounted.vfs.lookup(&mounted.credentials, open.inode(), self.name.as_bytes());
        found.map_err(|error| Error::at(&self.path(), error))
    }

    /// Opens the directory to which the entry refers, wherever its parent is by now.
    fn read_dir(self) -> Result<ReadDir> {
        let mounted = &self.dir.mounted;
        let open = mounted.vfs.open_inode(&mounted.credentials, self.find()?, LISTED);
        let open = open.map_err(|error| Error::at(&self.path(), error))?;
        Ok(ReadDir::new(mounted.clone(), open, Some(self.dir.clone()), self.name.into()))
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

/// How a directory is opened to be read.
pub(crate) const LISTED: OpenFlags = OpenFlags::READ.union(OpenFlags::DIRECTORY);

/// An iterator over the entries of a directory without "." and "..": in the order of the hashes of
/// their names, or without an index in that of their places. After an error it goes on with the
/// entries that can be read.
///
/// The iterator keeps the file system mounted, as an open [`crate::File`] does.
///
/// ```
/// use lanefs::FileSystem;
///
/// # use lanefs::device::RamDevice;
/// # use lanefs::{FormatOptions, OpenOptions};
/// # let device = std::sync::Arc::new(RamDevice::create(64 << 20).unwrap());
/// # FileSystem::format(&*device, &FormatOptions::default())?;
/// # let fs = FileSystem::open_device(device, &OpenOptions::new())?;
/// fs.create_dir("/photos")?;
/// fs.write("/notes", "milk")?;
/// for entry in fs.read_dir("/")? {
///     let entry = entry?;
///     match entry.file_name().to_str() {
///         Some("photos" | "lost+found") => assert!(entry.file_type()?.is_dir()),
///         Some("notes") => assert_eq!(entry.metadata()?.len(), 4),
///         _ => panic!("{}", entry.path().display()),
///     }
/// }
/// # Ok::<(), lanefs::Error>(())
/// ```
pub struct ReadDir {
    dir: Arc<Dir>,
    /// Where to read on; `None` at the end.
    cookie: Option<u64>,
    fetched: VecDeque<DirEntry>,
    /// Whether a fault of the directory was returned.
    is_told: bool,
}

impl ReadDir {
    pub(crate) fn new(
        mounted: Shared,
        open: OpenFile,
        above: Option<Arc<Dir>>,
        name: PathBuf,
    ) -> ReadDir {
        let dir = Arc::new(Dir { open, mounted, above, name });
        ReadDir { dir, cookie: Some(0), fetched: VecDeque::new(), is_told: false }
    }

    fn fetch(&mut self, from: u64) -> Result<()> {
        let (ReadDir { dir, cookie, fetched, .. }, mut next) = (self, from);
        let each = &mut |entry: &lanefs_ext4::DirEntry<'_>| {
            if fetched.len() >= BATCH {
                *cookie = Some(next);
                return ControlFlow::Break(());
            }
            next = entry.next;
            if entry.name != b"." && entry.name != b".." {
                fetched.push_back(DirEntry {
                    dir: dir.clone(),
                    name: OsString::from_vec(entry.name.to_vec()),
                    ino: entry.ino,
                    file_type: entry.file_type,
                });
            }
            ControlFlow::Continue(())
        };
        let read = dir.mounted.vfs.read_dir(&dir.open, from, each);
        read.map_err(|error| Error::at(&dir.path(), error))
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &self.dir.path()).finish_non_exhaustive()
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.fetched.is_empty()
            && let Some(from) = self.cookie.take()
            && let Err(error) = self.fetch(from)
            && !std::mem::replace(&mut self.is_told, true)
        {
            return Some(Err(error));
        }
        self.fetched.pop_front().map(Ok)
    }
}

/// An iterator over everything below a directory: each directory before its entries, symbolic links
/// without what they lead to. After an error it goes on with the rest.
///
/// A directory that it meets again is an error ([`Cause::Repeated`]), since it would have to be
/// read again: another thread has moved it, or the image is damaged and the directory has two
/// names, perhaps one in itself.
///
/// It keeps the directories from the top to the present one open.
#[derive(Debug)]
pub struct WalkDir {
    levels: Vec<ReadDir>,
    /// A directory that was returned, and is to be read next.
    next: Option<DirEntry>,
    /// The directories that were read: inode number and generation, since a number is used again.
    seen: HashSet<(Ino, u32)>,
}

/// A step of a walk.
pub(crate) enum Step {
    /// An entry; a directory is entered by the next step.
    Entry(DirEntry),
    /// The end of a directory.
    Leave(Arc<Dir>),
}

impl WalkDir {
    pub(crate) fn new(top: ReadDir) -> Result<WalkDir> {
        let mut walk = WalkDir { levels: Vec::new(), next: None, seen: HashSet::new() };
        walk.enter(top)?;
        Ok(walk)
    }

    pub(crate) fn step(&mut self) -> Option<Result<Step>> {
        if let Some(dir) = self.next.take()
            && let Err(error) = dir.read_dir().and_then(|dir| self.enter(dir))
        {
            return Some(Err(error));
        }
        let Some(found) = self.levels.last_mut()?.next() else {
            return self.levels.pop().map(|left| Ok(Step::Leave(left.dir)));
        };
        Some(found.and_then(|entry| {
            self.next = entry.file_type()?.is_dir().then(|| entry.clone());
            Ok(Step::Entry(entry))
        }))
    }

    fn enter(&mut self, reading: ReadDir) -> Result<()> {
        let dir = reading.dir.open.inode();
        if !self.seen.insert((dir.ino(), dir.generation())) {
            return Err(Error::new(&reading.dir.path(), Cause::Repeated));
        }
        self.levels.push(reading);
        Ok(())
    }
}

impl Iterator for WalkDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            match self.step()? {
                Ok(Step::Leave(_)) => {}
                Ok(Step::Entry(entry)) => return Some(Ok(entry)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl FileSystem {
    /// Returns the entries of a directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let dir = self.find(path, Follow::Links)?;
        let open = self.vfs().open_inode(self.credentials(), dir, LISTED).at(path)?;
        Ok(ReadDir::new(self.mounted().clone(), open, None, path.into()))
    }

    /// Returns everything below a directory.
    ///
    /// ```
    /// # use lanefs::device::RamDevice;
    /// # use lanefs::{FileSystem, FormatOptions, OpenOptions};
    /// use std::path::Path;
    ///
    /// # let device = std::sync::Arc::new(RamDevice::create(64 << 20).unwrap());
    /// # FileSystem::format(&*device, &FormatOptions::default())?;
    /// # let fs = FileSystem::open_device(device, &OpenOptions::new())?;
    /// fs.create_dir_all("/a/b")?;
    /// fs.write("/a/b/c", "text")?;
    /// let paths: lanefs::Result<Vec<_>> =
    ///     fs.walk_dir("/a")?.map(|entry| Ok(entry?.path())).collect();
    /// assert_eq!(paths?, [Path::new("/a/b"), Path::new("/a/b/c")]);
    /// # Ok::<(), lanefs::Error>(())
    /// ```
    pub fn walk_dir(&self, path: impl AsRef<Path>) -> Result<WalkDir> {
        WalkDir::new(self.read_dir(path)?)
    }
}
