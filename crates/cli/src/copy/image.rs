//! A tree in an image.

use super::{Attribute, Content, Identity, Meta, Settings, Sink, Source, Target};
use crate::cli::Failure;
use lanefs::{Attr, FileSystem, FileType, Follow, NewKind, NewNode, SetAttr, SetTime, SetXattr};
use lanefs_ext4::{Error, InodeRef, Seek};
use lanefs_vfs::{OpenFile, OpenFlags, Vfs};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The tree in `fs`; `device` distinguishes it from other trees.
pub struct ImageTree<'fs> {
    fs: &'fs FileSystem,
    image: PathBuf,
    device: u64,
}

/// A file in an image, referenced by its inode; the path is for messages only.
#[derive(Clone)]
pub struct ImageNode {
    inode: InodeRef,
    path: PathBuf,
}

impl<'fs> ImageTree<'fs> {
    /// Returns the tree of the file system in `image`.
    pub fn new(fs: &'fs FileSystem, image: &Path) -> ImageTree<'fs> {
        // This number is larger than any device number of the host, so the two never are equal.
        let device = (1 << 63) | std::ptr::from_ref(fs).addr() as u64;
        ImageTree { fs, image: image.into(), device }
    }

    /// Returns the file at `path`.
    pub fn find(&self, path: &Path, follow: Follow) -> Result<ImageNode, Failure> {
        let vfs = self.vfs();
        let inode =
            vfs.walk(self.fs.credentials(), vfs.root(), path.as_os_str().as_bytes(), follow);
        let node = |inode| ImageNode { inode, path: path.into() };
        inode.map(node).map_err(|error| self.failure(path, &error))
    }

    fn vfs(&self) -> &'fs Vfs {
        self.fs.vfs()
    }

    fn failure(&self, path: &Path, error: &Error) -> Failure {
        Failure::new(format_args!("{}:{}", self.image.display(), path.display()), error)
    }

    fn meta_of(&self, attr: &Attr) -> Meta {
        Meta {
            identity: Identity { device: self.device, inode: attr.ino.0.into() },
            file_type: attr.file_type,
            permissions: attr.permissions,
            links: attr.links.into(),
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            rdev: attr.rdev,
            atime: attr.atime,
            mtime: attr.mtime,
        }
    }

    fn open_for(&self, node: &ImageNode, flags: OpenFlags) -> Result<ImageFile<'fs>, Failure> {
        let open = self.vfs().open_inode(self.fs.credentials(), node.inode.clone(), flags);
        let open = open.map_err(|error| self.failure(&node.path, &error))?;
        Ok(self.file(open, node.path.clone()))
    }

    fn file(&self, open: OpenFile, path: PathBuf) -> ImageFile<'fs> {
        let shown = format!("{}:{}", self.image.display(), path.display());
        ImageFile { vfs: self.vfs(), open, shown }
    }

    fn make(
        &self,
        dir: &ImageNode,
        name: &[u8],
        kind: NewKind<'_>,
        permissions: u16,
    ) -> Result<ImageNode, Failure> {
        let path = dir.path.join(OsStr::from_bytes(name));
        let new = NewNode { kind, permissions, umask: 0 };
        match self.vfs().make(self.fs.credentials(), &dir.inode, name, &new) {
            Ok(inode) => Ok(ImageNode { inode, path }),
            Err(error) => Err(self.failure(&path, &error)),
        }
    }
}

/// An open file in an image.
pub struct ImageFile<'fs> {
    vfs: &'fs Vfs,
    open: OpenFile,
    shown: String,
}

impl Drop for ImageFile<'_> {
    fn drop(&mut self) {
        self.vfs.release(&self.open);
    }
}

impl ImageFile<'_> {
    fn failure(&self, error: &Error) -> Failure {
        Failure::new(&self.shown, error)
    }

    fn seek(&self, what: Seek, from: u64) -> Result<Option<u64>, Failure> {
        match self.vfs.seek(&self.open, what, from) {
            Ok(found) => Ok(Some(found)),
            Err(Error::NoSuchOffset) => Ok(None),
            Err(error) => Err(self.failure(&error)),
        }
    }
}

impl Content for ImageFile<'_> {
    fn data_after(&mut self, from: u64) -> Result<Option<(u64, u64)>, Failure> {
        let Some(start) = self.seek(Seek::Data, from)? else { return Ok(None) };
        let end = self.seek(Seek::Hole, start)?;
        Ok(Some((start, end.unwrap_or(start))))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        self.vfs.read(&self.open, offset, buf).map_err(|error| self.failure(&error))
    }
}

impl Sink for ImageFile<'_> {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        let (mut at, mut left) = (offset, data);
        while !left.is_empty() {
            match self.vfs.write(&self.open, at, left) {
                Ok((_, 0)) => return Err(self.failure(&Error::NoSpace)),
                Ok((_, written)) => {
                    at += written as u64;
                    left = left.get(written..).unwrap_or_default();
                }
                Err(error) => return Err(self.failure(&error)),
            }
        }
        Ok(())
    }

    fn set_len(&mut self, size: u64) -> Result<(), Failure> {
        self.vfs.set_len(&self.open, size).map(drop).map_err(|error| self.failure(&error))
    }
}

impl<'fs> Source for ImageTree<'fs> {
    type Node = ImageNode;
    type Content<'a>
        = ImageFile<'fs>
    where
        Self: 'a;

    fn meta(&self, node: &ImageNode) -> Result<Meta, Failure> {
        Ok(self.meta_of(&node.inode.attr()))
    }

    fn names(&self, dir: &ImageNode) -> Result<Vec<Vec<u8>>, Failure> {
        let open = self.open_for(dir, OpenFlags::READ | OpenFlags::DIRECTORY)?;
        let mut names = Vec::new();
        let read = self.vfs().read_dir(&open.open, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            ControlFlow::Continue(())
        });
        read.map(|()| names).map_err(|error| self.failure(&dir.path, &error))
    }

    fn child(&self, dir: &ImageNode, name: &[u8]) -> Result<ImageNode, Failure> {
        let path = dir.path.join(OsStr::from_bytes(name));
        match self.vfs().lookup(self.fs.credentials(), &dir.inode, name) {
            Ok(inode) => Ok(ImageNode { inode, path }),
            Err(error) => Err(self.failure(&path, &error)),
        }
    }

    fn follow(&self, node: &ImageNode) -> Result<ImageNode, Failure> {
        self.find(&node.path, Follow::Links)
    }

    fn read_link(&self, node: &ImageNode) -> Result<Vec<u8>, Failure> {
        self.vfs().read_link(&node.inode).map_err(|error| self.failure(&node.path, &error))
    }

    fn open(&self, node: &ImageNode) -> Result<ImageFile<'fs>, Failure> {
        self.open_for(node, OpenFlags::READ)
    }

    fn attributes(&self, node: &ImageNode) -> Result<Vec<Attribute>, Failure> {
        let failed = |error: &Error| self.failure(&node.path, error);
        let names = match self.vfs().list_xattr(self.fs.credentials(), &node.inode) {
            Err(Error::NotSupported) => Vec::new(),
            names => names.map_err(|error| failed(&error))?,
        };
        let mut attributes = Vec::with_capacity(names.len());
        for name in names {
            match self.vfs().get_xattr(self.fs.credentials(), &node.inode, &name) {
                Ok(value) => attributes.push((name, value)),
                Err(Error::NoAttribute) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(attributes)
    }

    fn show(&self, node: &ImageNode) -> String {
        format!("{}:{}", self.image.display(), node.path.display())
    }
}

impl<'fs> Target for ImageTree<'fs> {
    type Node = ImageNode;
    type Sink<'a>
        = ImageFile<'fs>
    where
        Self: 'a;

    fn look(&self, dir: &ImageNode, name: &[u8]) -> Result<Option<(ImageNode, Meta)>, Failure> {
        let path = dir.path.join(OsStr::from_bytes(name));
        match self.vfs().lookup(self.fs.credentials(), &dir.inode, name) {
            Ok(inode) => {
                let meta = self.meta_of(&inode.attr());
                Ok(Some((ImageNode { inode, path }, meta)))
            }
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(self.failure(&path, &error)),
        }
    }

    fn make_dir(
        &self,
        dir: &ImageNode,
        name: &[u8],
        permissions: u16,
    ) -> Result<ImageNode, Failure> {
        self.make(dir, name, NewKind::Directory, permissions)
    }

    fn make_file(
        &self,
        dir: &ImageNode,
        name: &[u8],
        permissions: u16,
    ) -> Result<(ImageNode, ImageFile<'fs>), Failure> {
        let path = dir.path.join(OsStr::from_bytes(name));
        let flags =
            OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE | OpenFlags::NO_FOLLOW;
        let new = NewNode { kind: NewKind::Regular, permissions, umask: 0 };
        match self.vfs().open_at(self.fs.credentials(), &dir.inode, name, flags, &new) {
            Ok(open) => {
                let node = ImageNode { inode: open.inode().clone(), path: path.clone() };
                Ok((node, self.file(open, path)))
            }
            Err(error) => Err(self.failure(&path, &error)),
        }
    }

    fn make_symlink(
        &self,
        dir: &ImageNode,
        name: &[u8],
        leads_to: &[u8],
    ) -> Result<ImageNode, Failure> {
        self.make(dir, name, NewKind::Symlink(leads_to), 0o777)
    }

    fn make_special(
        &self,
        dir: &ImageNode,
        name: &[u8],
        meta: &Meta,
        permissions: u16,
    ) -> Result<ImageNode, Failure> {
        let kind = match meta.file_type {
            FileType::CharDevice => NewKind::CharDevice(meta.rdev),
            FileType::BlockDevice => NewKind::BlockDevice(meta.rdev),
            FileType::Fifo => NewKind::Fifo,
            FileType::Socket => NewKind::Socket,
            FileType::Regular | FileType::Directory | FileType::Symlink => {
                return Err(Failure::new(Target::show(self, dir, name), "not a special file"));
            }
        };
        self.make(dir, name, kind, permissions)
    }

    fn link(&self, node: &ImageNode, dir: &ImageNode, name: &[u8]) -> Result<(), Failure> {
        let linked = self.vfs().link(self.fs.credentials(), &node.inode, &dir.inode, name);
        linked.map_err(|error| self.failure(&dir.path.join(OsStr::from_bytes(name)), &error))
    }

    fn remove(&self, dir: &ImageNode, name: &[u8]) -> Result<(), Failure> {
        let removed = self.vfs().unlink(self.fs.credentials(), &dir.inode, name);
        removed.map_err(|error| self.failure(&dir.path.join(OsStr::from_bytes(name)), &error))
    }

    fn set(&self, node: &ImageNode, settings: &Settings) -> Result<(), Failure> {
        let failed = |error: &Error| self.failure(&node.path, error);
        let who = self.fs.credentials();
        // Set the owner first, because that clears set-ID bits and capabilities; then the mode,
        // before the access control lists; and the times last, because every other change sets
        // them.
        if let Some((uid, gid)) = settings.owner {
            let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
            self.vfs().set_attr(who, &node.inode, &set).map_err(|error| failed(&error))?;
        }
        if let Some(permissions) = settings.permissions {
            let set = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
            self.vfs().set_attr(who, &node.inode, &set).map_err(|error| failed(&error))?;
        }
        for (name, value) in &settings.attributes {
            let set = self.vfs().set_xattr(who, &node.inode, name, value, SetXattr::Any);
            set.map_err(|error| {
                let shown = Source::show(self, node);
                let name = String::from_utf8_lossy(name);
                Failure::new(format_args!("{shown}: attribute {name}"), error)
            })?;
        }
        if let Some((atime, mtime)) = settings.times {
            let (atime, mtime) = (Some(SetTime::At(atime)), Some(SetTime::At(mtime)));
            let set = SetAttr { atime, mtime, ..SetAttr::default() };
            self.vfs().set_attr(who, &node.inode, &set).map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    fn show(&self, dir: &ImageNode, name: &[u8]) -> String {
        let path = dir.path.join(OsStr::from_bytes(name));
        format!("{}:{}", self.image.display(), path.display())
    }
}
