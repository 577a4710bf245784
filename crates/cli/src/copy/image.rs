//! A tree in an image.

use super::tree::OtherLists;
use super::{Attribute, Identity, Listing, Meta, Opening, Settings, Tree, TreeFile};
use crate::cli::{Failure, Report};
use crate::copy::links::Trail;
use lanefs::{Attr, FileSystem, FileType, Follow, NewNode, Rename};
use lanefs::{SetAttr, SetTime};
use lanefs_ext4::{Error, InodeRef, Seek, SetXattr};
use lanefs_ondisk::Ino;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_vfs::{OpenFile, OpenFlags, Vfs};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The flags that a new file has by itself, or gets from its directory.
const OF_ITSELF: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::HUGE_FILE)
    .union(InodeFlags::ENCRYPT);

/// Number of names read from a directory at once.
const BATCH: usize = 1024;

/// The tree in `fs`. Its files are identified by the device number `device`, which no other tree
/// has.
#[derive(Clone)]
pub struct ImageTree<'fs> {
    fs: &'fs FileSystem,
    image: PathBuf,
    device: u64,
}

/// A file in an image, referenced by its inode; the path is only for messages.
#[derive(Clone)]
pub struct ImageNode {
    inode: InodeRef,
    path: Trail,
}

impl ImageNode {
    /// Returns all attributes of the inode, including those that a copy does not need.
    pub fn attr(&self) -> Attr {
        self.inode.attr()
    }

    /// Returns the path in the image.
    pub fn path(&self) -> PathBuf {
        self.path.path()
    }
}

impl<'fs> ImageTree<'fs> {
    /// Returns the tree of the file system in `image`.
    pub fn new(fs: &'fs FileSystem, image: &Path) -> ImageTree<'fs> {
        // This number is larger than any device number of the host, so no tree of the host has the
        // same number.
        let device = (1 << 63) | std::ptr::from_ref(fs).addr() as u64;
        ImageTree { fs, image: image.into(), device }
    }

    /// Returns the file at `path`.
    pub fn find(&self, path: &Path, follow: Follow) -> Result<ImageNode, Failure> {
        let vfs = self.vfs();
        let inode =
            vfs.walk(self.fs.credentials(), vfs.root(), path.as_os_str().as_bytes(), follow);
        self.node(inode, Trail::new(path))
    }

    fn node(&self, inode: Result<InodeRef, Error>, path: Trail) -> Result<ImageNode, Failure> {
        Ok(ImageNode { inode: self.on(&path, inode)?, path })
    }

    /// Returns the entries of a directory that can be read, with their types. Reports faults.
    pub fn entries(&self, dir: &ImageNode, report: &Report) -> Vec<Listed> {
        let (mut listing, mut entries) = (report.given(self.list(dir)), Vec::new());
        let next = || report.given(listing.as_mut()?.next_entry()).flatten();
        for mut entry in std::iter::from_fn(next) {
            if entry.file_type.is_none() {
                let node = report.given(self.node_of(dir, &entry));
                entry.file_type = node.map(|node| node.attr().file_type);
            }
            entries.push(entry);
        }
        entries
    }

    /// Returns the file of an entry of `dir`, without a look-up of its name, which takes long in a
    /// large directory without an index.
    pub fn node_of(&self, dir: &ImageNode, entry: &Listed) -> Result<ImageNode, Failure> {
        match self.vfs().fs().get(entry.ino, None) {
            Err(Error::Stale) => self.child(dir, &entry.name), // says what is damaged
            found => self.node(found, dir.path.join(&entry.name)),
        }
    }

    /// Returns the value of an extended attribute; `None` if the file does not have it.
    pub fn attribute(&self, node: &ImageNode, name: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        match self.vfs().get_xattr(self.fs.credentials(), &node.inode, name) {
            Err(Error::NoAttribute | Error::NotSupported) => Ok(None),
            value => self.on(&node.path, value).map(Some),
        }
    }

    /// Removes an extended attribute.
    pub fn remove_attribute(&self, node: &ImageNode, name: &[u8]) -> Result<(), Failure> {
        let removed = self.vfs().remove_xattr(self.fs.credentials(), &node.inode, name);
        self.on(&node.path, removed)
    }

    fn vfs(&self) -> &'fs Vfs {
        self.fs.vfs()
    }

    /// Converts an error about the file at `path`.
    fn on<T>(&self, path: &Trail, result: Result<T, Error>) -> Result<T, Failure> {
        result.map_err(|error| Failure::new(self.shown(path), error))
    }

    fn shown(&self, path: &Trail) -> String {
        format!("{}:{}", self.image.display(), path.path().display())
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
            sectors: attr.sectors,
            rdev: attr.rdev,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
        }
    }

    fn open_for(&self, node: &ImageNode, flags: OpenFlags) -> Result<ImageFile<'fs>, Failure> {
        let open = self.vfs().open_inode(self.fs.credentials(), node.inode.clone(), flags);
        Ok(self.file(self.on(&node.path, open)?, node.path.clone()))
    }

    fn file(&self, open: OpenFile, path: Trail) -> ImageFile<'fs> {
        ImageFile { tree: self.clone(), open, path }
    }
}

/// An open file in an image.
pub struct ImageFile<'fs> {
    tree: ImageTree<'fs>,
    open: OpenFile,
    path: Trail,
}

impl Drop for ImageFile<'_> {
    fn drop(&mut self) {
        self.tree.vfs().release(&self.open);
    }
}

impl ImageFile<'_> {
    fn on<T>(&self, result: Result<T, Error>) -> Result<T, Failure> {
        self.tree.on(&self.path, result)
    }

    fn seek(&self, what: Seek, from: u64) -> Result<Option<u64>, Failure> {
        match self.tree.vfs().seek(&self.open, what, from) {
            Err(Error::NoSuchOffset) => Ok(None),
            found => self.on(found).map(Some),
        }
    }
}

impl TreeFile for ImageFile<'_> {
    fn data_after(&mut self, from: u64) -> Result<Option<(u64, u64)>, Failure> {
        let Some(start) = self.seek(Seek::Data, from)? else { return Ok(None) };
        let end = self.seek(Seek::Hole, start)?;
        Ok(Some((start, end.unwrap_or(start))))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        self.on(self.tree.vfs().read(&self.open, offset, buf))
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        let (mut at, mut left) = (offset, data);
        while !left.is_empty() {
            let (_, written) = self.on(match self.tree.vfs().write(&self.open, at, left) {
                Ok((_, 0)) => Err(Error::NoSpace),
                written => written,
            })?;
            at += written as u64;
            left = left.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    fn set_len(&mut self, size: u64) -> Result<(), Failure> {
        self.on(self.tree.vfs().set_len(&self.open, size)).map(drop)
    }
}

/// A directory of an image that is being read, a batch of names at a time.
pub struct ImageListing<'fs> {
    dir: ImageFile<'fs>,
    cookie: u64,
    fetched: VecDeque<Listed>,
    at_end: bool,
    /// A fault of the directory, returned after what can be read.
    fault: Option<Failure>,
}

/// An entry of a directory.
pub struct Listed {
    pub name: Vec<u8>,
    /// The file type, if the directory stores it.
    pub file_type: Option<FileType>,
    ino: Ino,
}

impl Listing for ImageListing<'_> {
    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.next_entry()?.map(|entry| entry.name))
    }
}

impl ImageListing<'_> {
    fn next_entry(&mut self) -> Result<Option<Listed>, Failure> {
        if self.fetched.is_empty() && !self.at_end {
            self.fetch();
        }
        match self.fetched.pop_front() {
            // If reading fails, the listing reports the error once, after what can be read.
            None => self.fault.take().map_or(Ok(None), Err),
            entry => Ok(entry),
        }
    }

    fn fetch(&mut self) {
        let ImageListing { dir, cookie, fetched, at_end, fault } = self;
        *at_end = true;
        let from = *cookie;
        let read = dir.tree.vfs().read_dir(&dir.open, from, &mut |entry| {
            if fetched.len() >= BATCH {
                *at_end = false;
                return ControlFlow::Break(());
            }
            *cookie = entry.next;
            if entry.name != b"." && entry.name != b".." {
                let (name, ino, file_type) = (entry.name.to_vec(), entry.ino, entry.file_type);
                fetched.push_back(Listed { name, file_type, ino });
            }
            ControlFlow::Continue(())
        });
        *fault = dir.on(read).err().or(fault.take());
    }
}

impl<'fs> Tree for ImageTree<'fs> {
    const DIRECTORIES_HAVE_ONE_NAME: bool = true;
    type Node = ImageNode;
    type Listing<'a>
        = ImageListing<'fs>
    where
        Self: 'a;
    type File<'a>
        = ImageFile<'fs>
    where
        Self: 'a;

    fn meta(&self, node: &ImageNode) -> Result<Meta, Failure> {
        Ok(self.meta_of(&self.vfs().fs().stat(&node.inode)))
    }

    fn list(&self, dir: &ImageNode) -> Result<ImageListing<'fs>, Failure> {
        let dir = self.open_for(dir, OpenFlags::READ | OpenFlags::DIRECTORY)?;
        let fetched = VecDeque::new();
        Ok(ImageListing { dir, cookie: 0, fetched, at_end: false, fault: None })
    }

    fn child(&self, dir: &ImageNode, name: &[u8]) -> Result<ImageNode, Failure> {
        let found = self.vfs().lookup(self.fs.credentials(), &dir.inode, name);
        self.node(found, dir.path.join(name))
    }

    fn follow(&self, node: &ImageNode) -> Result<ImageNode, Failure> {
        self.find(&node.path.path(), Follow::Links)
    }

    fn read_link(&self, node: &ImageNode) -> Result<Vec<u8>, Failure> {
        self.on(&node.path, self.vfs().read_link(&node.inode))
    }

    fn open(&self, node: &ImageNode) -> Result<ImageFile<'fs>, Failure> {
        self.open_for(node, OpenFlags::READ)
    }

    fn attributes(&self, node: &ImageNode) -> Result<Vec<Attribute>, Failure> {
        let names = match self.vfs().list_xattr(self.fs.credentials(), &node.inode) {
            Err(Error::NotSupported) => Vec::new(),
            names => self.on(&node.path, names)?,
        };
        let mut attributes = Vec::with_capacity(names.len());
        for name in names {
            match self.vfs().get_xattr(self.fs.credentials(), &node.inode, &name) {
                Err(Error::NoAttribute) => {}
                value => attributes.push((name, self.on(&node.path, value)?)),
            }
        }
        Ok(attributes)
    }

    fn show(&self, node: &ImageNode) -> String {
        self.shown(&node.path)
    }

    fn look(&self, dir: &ImageNode, name: &[u8]) -> Result<Option<(ImageNode, Meta)>, Failure> {
        match self.vfs().lookup(self.fs.credentials(), &dir.inode, name) {
            Err(Error::NotFound) => Ok(None),
            found => {
                let node = self.node(found, dir.path.join(name))?;
                Ok(Some((node.clone(), self.meta(&node)?)))
            }
        }
    }

    fn make(&self, dir: &ImageNode, name: &[u8], new: NewNode<'_>) -> Result<ImageNode, Failure> {
        let made = self.vfs().make(self.fs.credentials(), &dir.inode, name, &new);
        self.node(made, dir.path.join(name))
    }

    fn make_file(
        &self,
        dir: &ImageNode,
        name: &[u8],
        new: NewNode<'_>,
        opening: Opening,
    ) -> Result<(ImageNode, ImageFile<'fs>), Failure> {
        let path = dir.path.join(name);
        let how = match opening {
            Opening::New => OpenFlags::EXCLUSIVE,
            Opening::Emptied => OpenFlags::TRUNCATE,
        };
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::NO_FOLLOW | how;
        let open = self.vfs().open_at(self.fs.credentials(), &dir.inode, name, flags, &new);
        let open = self.on(&path, open)?;
        let node = ImageNode { inode: open.inode().clone(), path: path.clone() };
        Ok((node, self.file(open, path)))
    }

    fn link(&self, node: &ImageNode, dir: &ImageNode, name: &[u8]) -> Result<(), Failure> {
        let linked = self.vfs().link(self.fs.credentials(), &node.inode, &dir.inode, name);
        self.on(&dir.path.join(name), linked)
    }

    fn rename(&self, dir: &ImageNode, from: &[u8], to: &[u8]) -> Result<ImageNode, Failure> {
        let who = self.fs.credentials();
        let renamed = self.vfs().rename(who, &dir.inode, from, &dir.inode, to, Rename::Replace);
        self.on(&dir.path.join(to), renamed)?;
        self.child(dir, to)
    }

    fn replacement(&self, node: &ImageNode) -> Result<Option<Settings>, Failure> {
        self.open_for(node, OpenFlags::WRITE).map(drop)?;
        let meta = self.meta(node)?;
        let attr = node.attr();
        // A new file would have neither the further names nor the flags.
        if meta.links > 1
            || !InodeFlags::from_bits_retain(attr.flags).difference(OF_ITSELF).is_empty()
        {
            return Ok(None);
        }
        Ok(Some(Settings {
            owner: Some((meta.uid, meta.gid)),
            permissions: Some(meta.permissions),
            attributes: self.attributes(node)?,
            other_lists: OtherLists::Removed,
            project: Some(node.inode.project()),
            times: None,
        }))
    }

    fn free_space(&self, _dir: &ImageNode) -> Result<u64, Failure> {
        let found = self.vfs().stat_fs();
        Ok(found.blocks_available.saturating_mul(u64::from(found.block_size)))
    }

    fn remove(&self, dir: &ImageNode, name: &[u8]) -> Result<(), Failure> {
        let removed = self.vfs().unlink(self.fs.credentials(), &dir.inode, name);
        self.on(&dir.path.join(name), removed)
    }

    fn remove_dir(&self, dir: &ImageNode, name: &[u8]) -> Result<(), Failure> {
        let removed = self.vfs().rmdir(self.fs.credentials(), &dir.inode, name);
        self.on(&dir.path.join(name), removed)
    }

    fn set(&self, node: &ImageNode, settings: &Settings) -> Result<(), Failure> {
        let who = self.fs.credentials();
        let change = |set: &SetAttr| self.vfs().set_attr(who, &node.inode, set).map(drop);
        // Set the owner first, because changing the owner clears set-ID bits and capabilities. Then
        // set the mode, before the access control lists of the original. Set the times last,
        // because every other change sets them too.
        if let Some((uid, gid)) = settings.owner {
            let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
            self.on(&node.path, change(&set))?;
        }
        if let Some(project) = settings.project.filter(|&project| project != node.inode.project()) {
            let set = SetAttr { project: Some(project), ..SetAttr::default() };
            match change(&set) {
                Err(Error::NotSupported) => {}
                changed => self.on(&node.path, changed)?,
            }
        }
        let named = |name: &[u8], error| {
            let (shown, name) = (self.show(node), String::from_utf8_lossy(name));
            Failure::new(format_args!("{shown}: attribute {name}"), error)
        };
        for name in settings.lists_to_remove() {
            match self.vfs().remove_xattr(who, &node.inode, name) {
                Ok(()) | Err(Error::NoAttribute | Error::NotSupported) => {}
                Err(error) => return Err(named(name, error)),
            }
        }
        if let Some(permissions) = settings.permissions {
            let set = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
            self.on(&node.path, change(&set))?;
        }
        for (name, value) in &settings.attributes {
            let set = self.vfs().set_xattr(who, &node.inode, name, value, SetXattr::Any);
            set.map_err(|error| named(name, error))?;
        }
        if let Some((atime, mtime)) = settings.times {
            let (atime, mtime) = (Some(SetTime::At(atime)), Some(SetTime::At(mtime)));
            let set = SetAttr { atime, mtime, ..SetAttr::default() };
            self.on(&node.path, change(&set))?;
        }
        Ok(())
    }

    fn show_entry(&self, dir: &ImageNode, name: &[u8]) -> String {
        self.shown(&dir.path.join(name))
    }
}
