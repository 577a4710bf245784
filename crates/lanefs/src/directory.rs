//! Reading directories.

use crate::error::{At, Result};
use crate::mounted::Shared;
use lanefs_ondisk::{FileType, Ino};
use lanefs_vfs::OpenFile;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The number of entries that are read at once. It bounds the memory that listing a large directory
/// needs.
const BATCH: usize = 256;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    name: OsString,
    ino: Ino,
    file_type: Option<FileType>,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }
    /// The inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }
    /// The file type, if the directory stores it (feature `filetype`).
    pub fn file_type(&self) -> Option<FileType> {
        self.file_type
    }
}

/// An iterator over the entries of a directory, in the order of the hashes of their names, without
/// "." and "..".
///
/// The iterator keeps the file system mounted, as an open [`crate::File`] does.
///
/// ```
/// use lanefs::{FileSystem, FileType};
///
/// # use lanefs::device::RamDevice;
/// # use lanefs::{FormatOptions, OpenOptions};
/// # let device = std::sync::Arc::new(RamDevice::create(64 << 20).unwrap());
/// # FileSystem::format(&*device, &FormatOptions::default())?;
/// # let fs = FileSystem::open_device(device, &OpenOptions::new())?;
/// fs.create_dir("/photos")?;
/// fs.write("/notes", "")?;
/// for entry in fs.read_dir("/")? {
///     let entry = entry?;
///     match entry.file_name().to_str() {
///         Some("photos" | "lost+found") => {
///             assert_eq!(entry.file_type(), Some(FileType::Directory));
///         }
///         Some("notes") => assert_eq!(entry.ino(), fs.metadata("/notes")?.ino()),
///         other => panic!("{other:?}"),
///     }
/// }
/// # Ok::<(), lanefs::Error>(())
/// ```
pub struct ReadDir {
    dir: OpenFile,
    /// This field is declared after `dir`, so that it is dropped after `dir`.
    mounted: Shared,
    path: PathBuf,
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
    pub(crate) fn new(mounted: Shared, dir: OpenFile, path: PathBuf) -> ReadDir {
        ReadDir { dir, mounted, path, cookie: 0, fetched: VecDeque::new(), at_end: AtEnd::No }
    }

    fn fetch(&mut self) -> Result<()> {
        let ReadDir { cookie, fetched, at_end, .. } = self;
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
                    name: OsString::from_vec(entry.name.to_vec()),
                    ino: entry.ino,
                    file_type: entry.file_type,
                });
            }
            ControlFlow::Continue(())
        };
        self.mounted.vfs.read_dir(&self.dir, from, each).at(&self.path)
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").field("path", &self.path).finish_non_exhaustive()
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
