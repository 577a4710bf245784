//! An inode of the model.

use crate::data::Data;
use crate::listing::{Entry, digest_target};
use crate::op::{Kind, Path};
use lanefs_ondisk::{FileType, Time};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub permissions: u16,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub data: Data,
    pub children: BTreeMap<Vec<u8>, u64>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub atime: Option<Time>,
    pub mtime: Option<Time>,
    /// Whether the file was created without a name and has never had one. A link can still give
    /// such a file its first name.
    pub unnamed: bool,
}

/// The kind of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openness {
    /// A regular file that has a name, or that was created without a name and never had one.
    Regular,
    /// A regular file whose last name was removed.
    Unlinked,
    /// A file that is not a regular file.
    Other,
}

impl Node {
    /// Creates an inode without data. Its link count already includes its first name.
    pub fn new(kind: Kind, permissions: u16, uid: u32, gid: u32) -> Node {
        let links = if kind == Kind::Directory { 2 } else { 1 };
        Node {
            kind,
            permissions,
            uid,
            gid,
            links,
            data: Data::default(),
            children: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            atime: None,
            mtime: None,
            unnamed: false,
        }
    }

    /// Returns what kind of open file this is.
    pub fn openness(&self) -> Openness {
        match self {
            Node { kind: Kind::Directory, .. } => Openness::Other,
            Node { kind: Kind::Regular, links: 0, unnamed: false, .. } => Openness::Unlinked,
            Node { kind: Kind::Regular, .. } => Openness::Regular,
            _ => Openness::Other,
        }
    }

    /// Returns the digest of the contents; 0 for kinds without contents.
    pub fn content(&self) -> u64 {
        match &self.kind {
            Kind::Regular => self.data.digest(),
            Kind::Symlink(target) => digest_target(target),
            _ => 0,
        }
    }

    /// Returns everything visible except the contents, so the digest is 0.
    pub fn entry(&self) -> Entry {
        let (file_type, size, rdev) = match &self.kind {
            Kind::Regular => (FileType::Regular, Some(self.data.size()), (0, 0)),
            Kind::Directory => (FileType::Directory, None, (0, 0)),
            Kind::Symlink(target) => (FileType::Symlink, Some(target.len() as u64), (0, 0)),
            Kind::Fifo => (FileType::Fifo, Some(0), (0, 0)),
            Kind::Socket => (FileType::Socket, Some(0), (0, 0)),
            Kind::CharDevice(a, b) => (FileType::CharDevice, Some(0), (*a, *b)),
            Kind::BlockDevice(a, b) => (FileType::BlockDevice, Some(0), (*a, *b)),
        };
        Entry {
            mode: file_type.mode_bits() | self.permissions,
            links: Some(self.links),
            uid: self.uid,
            gid: self.gid,
            size,
            rdev,
            content: 0,
            xattrs: self.xattrs.clone(),
            twin: Path::new(),
            ino: None,
            sectors: None,
            atime: self.atime,
            mtime: self.mtime,
            ctime: None,
            data: None,
        }
    }
}
