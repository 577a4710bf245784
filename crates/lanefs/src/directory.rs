//! Reading directories and trees.

use crate::error::{At, Error, Result};
use crate::filesystem::FileSystem;
use crate::metadata::Metadata;
use crate::mounted::Shared;
use lanefs_ondisk::{FileType, Ino};
use lanefs_vfs::{OpenFile, OpenFlags};
use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of entries that are read at once. It bounds the memory that listing a large directory
/// needs.
const BATCH: usize = 256;

/// An open directory, which its [`ReadDir`] and the entries share.
struct Dir {
    open: OpenFile,
    /// This field is declared after `open`, so that it is dropped after `open`.
    mounted: Shared,
    path: PathBuf,
}

/// An entry of a directory. Keeps its directory open, and so the file system mounted.
#[derive(Clone)]
pub struct DirEntry {
    dir: Arc<Dir>,
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
        self.dir.path.join(&self.name)
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
        let Dir { open, mounted, .. } = &*self.dir;
        let name = self.name.as_bytes();
        let found = mounted.vfs.lookup(&mounted.credentials, open.inode(), name);
        Ok(found.map_err(|error| Error::at(&self.path(), error))?.attr().into())
    }

    /// Opens the directory to which the entry refers, wherever its parent is by now.
    fn read_dir(&self) -> Result<ReadDir> {
        let Dir { open, mounted, .. } = &*self.dir;
        let (who, path) = (&mounted.credentials, self.path());
        let dir = mounted.vfs.lookup(who, open.inode(), self.name.as_bytes()).at(&path)?;
        let open = mounted.vfs.open_inode(who, dir, LISTED).at(&path)?;
        Ok(ReadDir::new(mounted.clone(), open, path))
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

/// How a directory is opened to be read.
pub(crate) const LISTED: OpenFlags = OpenFlags::READ.union(OpenFlags::DIRECTORY);

/// An iterator over the entries of a directory, in the order of the hashes of their names, without
/// "." and "..".
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
    cookie: u64,
    fetched: VecDeque<DirEntry>,
    at_end: AtEnd,
}

#[derive(PartialEq, Eq)]
enum AtEnd {
    Yes,
    No,
}

impl ReadDir {
    pub(crate) fn new(mounted: Shared, open: OpenFile, path: PathBuf) -> ReadDir {
        let dir = Arc::new(Dir { open, mounted, path });
        ReadDir { dir, cookie: 0, fetched: VecDeque::new(), at_end: AtEnd::No }
    }

    fn fetch(&mut self) -> Result<()> {
        let ReadDir { dir, cookie, fetched, at_end } = self;
        *at_end = AtEnd::Yes;
        let from = *cookie;
        let each = &mut |entry: &lanefs_ext4::DirEntry<'_>| {
            if fetched.len() >= BATCH {
                *at_end = AtEnd::No;
                return ControlFlow::Break(());
            }
            *cookie = entry.next;
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
        dir.mounted.vfs.read_dir(&dir.open, from, each).at(&dir.path)
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &self.dir.path).finish_non_exhaustive()
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.fetched.is_empty()
            && self.at_end == AtEnd::No
            && let Err(error) = self.fetch()
        {
            self.at_end = AtEnd::Yes;
            return Some(Err(error));
        }
        self.fetched.pop_front().map(Ok)
    }
}

/// An iterator over everything below a directory: each directory before its entries, symbolic links
/// without what they lead to. After an error it goes on with the rest.
///
/// It keeps one directory open, and an entry for each directory that it has yet to read.
#[derive(Debug)]
pub struct WalkDir {
    reading: ReadDir,
    left: Vec<DirEntry>,
    /// The directories that were found. In a damaged file system a directory may contain itself.
    seen: HashSet<Ino>,
}

impl Iterator for WalkDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            let Some(found) = self.reading.next() else {
                match self.left.pop()?.read_dir() {
                    Ok(reading) => self.reading = reading,
                    Err(error) => return Some(Err(error)),
                }
                continue;
            };
            let found = found.and_then(|entry| Ok((entry.file_type()?, entry)));
            return Some(found.map(|(file_type, entry)| {
                if file_type.is_dir() && self.seen.insert(entry.ino) {
                    self.left.push(entry.clone());
                }
                entry
            }));
        }
    }
}

impl FileSystem {
    /// Returns the entries of a directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let dir = self.find(path, lanefs_vfs::Follow::Links)?;
        let open = self.vfs().open_inode(self.credentials(), dir, LISTED).at(path)?;
        Ok(ReadDir::new(self.mounted().clone(), open, path.into()))
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
        let reading = self.read_dir(path)?;
        let seen = HashSet::from([reading.dir.open.inode().ino()]);
        Ok(WalkDir { reading, left: Vec::new(), seen })
    }
}
