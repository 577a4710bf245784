//! The files of a file system that is created together with its files.

use crate::options::MkfsOptions;
use crate::report::{FileFault, MkfsError};
use lanefs_ondisk::extent::Extent;
use lanefs_ondisk::{FileType, Time};

/// All files of a new file system, in the order of their inode numbers: the root directory,
/// `lost+found`, then the others.
#[derive(Debug, Clone)]
pub struct NewTree {
    files: Vec<NewFile>,
}

/// A file of a [`NewTree`].
#[derive(Debug, Clone)]
pub struct NewFile {
    /// The low 12 bits of the mode; the type follows from `content`.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of the data.
    pub mtime: Time,
    /// Time of the last change of the inode.
    pub ctime: Time,
    /// Time of creation.
    pub crtime: Time,
    /// Number of names; ignored for directories.
    pub links: u32,
    /// Extended attributes with full names, and values in the form of getxattr(2).
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Type and contents.
    pub content: NewContent,
}

/// The contents of a [`NewFile`].
#[derive(Debug, Clone)]
pub enum NewContent {
    /// A directory. Its parent and its files are given by their indices in the tree.
    Directory {
        /// The parent; the root is its own parent.
        parent: usize,
        /// The names with the indices of their files: each name once, without "." and "..".
        entries: Vec<(Box<[u8]>, usize)>,
    },
    /// A regular file whose data is written already, in blocks from [`super::Filling::claim`].
    Regular {
        /// The size in bytes.
        size: u64,
        /// The blocks of its data, in order; all other blocks of the file are holes.
        extents: Vec<Extent>,
    },
    /// A symbolic link with its target.
    Symlink(Box<[u8]>),
    /// A device: character or block, major, minor.
    Device(FileType, u32, u32),
    /// A pipe or a socket.
    Empty(FileType),
}

impl NewFile {
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.content, NewContent::Directory { .. })
    }

    /// Returns whether the size needs more than 31 bits.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self.content, NewContent::Regular { size, .. } if size >= 1 << 31)
    }
}

impl NewContent {
    /// Returns the type of the file.
    pub fn file_type(&self) -> FileType {
        match self {
            NewContent::Directory { .. } => FileType::Directory,
            NewContent::Regular { .. } => FileType::Regular,
            NewContent::Symlink(_) => FileType::Symlink,
            NewContent::Device(kind, ..) | NewContent::Empty(kind) => *kind,
        }
    }
}

/// The index of the root directory.
pub const ROOT: usize = 0;
/// The index of `lost+found`.
pub const LOST_AND_FOUND: usize = 1;

impl NewTree {
    /// Creates a tree of these files. The first must be the root, the second `lost+found`.
    ///
    /// # Errors
    /// [`MkfsError::File`] if the index of a parent or of an entry is not in the tree.
    pub fn new(files: Vec<NewFile>) -> Result<NewTree, MkfsError> {
        let exists = |index: usize| index < files.len();
        for (index, file) in files.iter().enumerate() {
            let sound = match &file.content {
                NewContent::Directory { parent, entries } => {
                    exists(*parent) && entries.iter().all(|(_, child)| exists(*child))
                }
                _ => index > LOST_AND_FOUND,
            };
            if !sound {
                return Err(MkfsError::File { index, fault: FileFault::Tree });
            }
        }
        match files.len() {
            0 | 1 => Err(MkfsError::File { index: files.len(), fault: FileFault::Tree }),
            _ => Ok(NewTree { files }),
        }
    }

    /// Creates the tree of an empty file system.
    pub(crate) fn empty(options: &MkfsOptions, time: Time) -> NewTree {
        let directory = |permissions, (uid, gid), entries| NewFile {
            permissions,
            uid,
            gid,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            links: 2,
            attributes: Vec::new(),
            content: NewContent::Directory { parent: ROOT, entries },
        };
        let names = vec![(Box::from(&b"lost+found"[..]), LOST_AND_FOUND)];
        let root = directory(0o755, options.root_owner, names);
        NewTree { files: vec![root, directory(0o700, (0, 0), Vec::new())] }
    }

    /// Returns the files.
    pub(crate) fn files(&self) -> &[NewFile] {
        &self.files
    }
}
