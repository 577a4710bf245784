//! Runs operations on Lanefs through its library.

use crate::home;
use crate::listing::library_names;
use crate::op::{File, Kind, Op, Outcome, Seen, Tree, pattern, split};
use lanefs_ext4::flags::folds_names;
use lanefs_ext4::{
    Error, Fs, InodeRef, NewInode, NewKind, Privilege, Rdev, SetAttr, SetTime, SyncMode,
};
use lanefs_ondisk::FileType;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// A mounted file system and the files opened in it.
pub struct Library {
    fs: Arc<Fs>,
    open: HashMap<u8, InodeRef>,
}

impl Library {
    /// Prepares to run operations on `fs`.
    pub fn new(fs: &Arc<Fs>) -> Library {
        Library { fs: fs.clone(), open: HashMap::new() }
    }

    /// Returns the inode at a path, without following symbolic links.
    pub fn resolve(&self, path: &[u8]) -> Result<InodeRef, Error> {
        let mut inode = home::of_library(&self.fs)?;
        for name in path.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            if inode.file_type() != FileType::Directory {
                return Err(Error::NotDirectory);
            }
            inode = self.fs.find(&inode, &spelled(&inode, name))?.ok_or(Error::NotFound)?;
        }
        Ok(inode)
    }

    fn parent<'p>(&self, path: &'p [u8]) -> Result<(InodeRef, &'p [u8]), Error> {
        let (dir, name) = split(path);
        let dir = self.resolve(dir)?;
        if dir.file_type() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        Ok((dir, name))
    }

    fn file(&self, file: &File) -> Result<InodeRef, Error> {
        match file {
            File::At(path) => self.resolve(path),
            File::Open(slot) => self.open.get(slot).cloned().ok_or(Error::BadDescriptor),
        }
    }

    /// Runs `op`; returns its result, or the library's error instead of an errno.
    pub fn act(&mut self, op: &Op) -> Result<Seen, Error> {
        let fs = self.fs.clone();
        match op {
            Op::Create { path, kind, permissions, uid, gid } => {
                let (dir, name) = self.parent(path)?;
                let device = |a: &u32, b: &u32| Rdev { major: *a, minor: *b };
                let (kind, permissions) = match kind {
                    Kind::Regular => (NewKind::Regular, *permissions),
                    Kind::Directory => (NewKind::Directory, *permissions),
                    Kind::Symlink(target) => (NewKind::Symlink(target), 0o777),
                    Kind::Fifo => (NewKind::Fifo, *permissions),
                    Kind::Socket => (NewKind::Socket, *permissions),
                    Kind::CharDevice(a, b) => (NewKind::CharDevice(device(a, b)), *permissions),
                    Kind::BlockDevice(a, b) => (NewKind::BlockDevice(device(a, b)), *permissions),
                };
                let (uid, gid) = (*uid, *gid);
                fs.create(&dir, name, &NewInode { kind, permissions, umask: 0, uid, gid })?;
            }
            Op::Unnamed { dir, slot } => {
                let dir = self.resolve(dir)?;
                let kind = NewKind::Regular;
                let new = NewInode { kind, permissions: 0o600, umask: 0, uid: 0, gid: 0 };
                self.open.insert(*slot, fs.create_unnamed(&dir, &new)?);
            }
            Op::Open { path, slot } => {
                let inode = self.resolve(path)?;
                self.open.insert(*slot, inode);
            }
            Op::Close { slot } => {
                let inode = self.open.remove(slot).ok_or(Error::BadDescriptor)?;
                fs.release(&inode);
            }
            Op::Read { file, offset, len } => {
                let mut bytes = vec![0; *len];
                let n = fs.read_at(&self.file(file)?, *offset, &mut bytes)?;
                bytes.truncate(n);
                return Ok(Seen::Bytes(bytes));
            }
            Op::Write { file, offset, len, seed } => {
                let data = pattern(*seed, *len);
                let n = fs.write_at(&self.file(file)?, *offset, &data, Privilege::Root)?;
                if n < data.len() {
                    return Err(Error::NoSpace);
                }
            }
            Op::Append { file, len, seed } => {
                let data = pattern(*seed, *len);
                let (_, n) = fs.append(&self.file(file)?, &data, Privilege::Root)?;
                if n < data.len() {
                    return Err(Error::NoSpace);
                }
            }
            Op::Truncate { file, size } => {
                let set = SetAttr { size: Some(*size), ..SetAttr::default() };
                let inode = self.file(file)?;
                fs.set_attr(&inode, &SetAttr { mtime: Some(SetTime::Now), ..set })?;
            }
            Op::Fallocate { file, how, offset, len } => {
                fs.fallocate(&self.file(file)?, *how, *offset, *len, Privilege::Root)?;
            }
            Op::Link { file, new } => {
                let inode = self.file(file)?;
                let (dir, name) = self.parent(new)?;
                fs.link(&inode, &dir, name)?;
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent(path)?;
                fs.unlink(&dir, &spelled(&dir, name))?;
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent(path)?;
                fs.rmdir(&dir, &spelled(&dir, name))?;
            }
            Op::Rename { path, new, how } => {
                let (from, name) = self.parent(path)?;
                let (to, new_name) = self.parent(new)?;
                fs.rename(&from, &spelled(&from, name), &to, new_name, *how)?;
            }
            Op::SetXattr { path, name, value, how } => {
                fs.set_xattr(&self.resolve(path)?, name, value, *how)?;
            }
            Op::RemoveXattr { path, name } => fs.remove_xattr(&self.resolve(path)?, name)?,
            Op::Chmod { path, permissions } => {
                let set = SetAttr { permissions: Some(*permissions), ..SetAttr::default() };
                fs.set_attr(&self.resolve(path)?, &set)?;
            }
            Op::Chown { path, uid, gid } => {
                let set = SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() };
                fs.set_attr(&self.resolve(path)?, &set)?;
            }
            Op::Times { path, atime, mtime } => {
                let (atime, mtime) = (Some(SetTime::At(*atime)), Some(SetTime::At(*mtime)));
                let set = SetAttr { atime, mtime, ..SetAttr::default() };
                fs.set_attr(&self.resolve(path)?, &set)?;
            }
            Op::List { path } => {
                let dir = self.resolve(path)?;
                let names = library_names(&fs, &dir)?;
                let mut names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
                names.sort();
                return Ok(Seen::Names(names));
            }
            Op::Fsync { file, mode } => fs.fsync(&self.file(file)?, *mode)?,
            Op::Sync => fs.sync()?,
        }
        Ok(Seen::Done)
    }

    /// Makes the content of a file durable.
    pub fn fsync(&self, path: &[u8]) -> Result<(), Error> {
        self.fs.fsync(&self.resolve(path)?, SyncMode::Full)
    }
}

/// Returns a name as the suites look it up. In a directory that ignores case, this is the name in
/// upper case.
fn spelled<'n>(dir: &InodeRef, name: &'n [u8]) -> Cow<'n, [u8]> {
    match folds_names(&dir.rights()) {
        true => name.to_ascii_uppercase().into(),
        false => name.into(),
    }
}

impl Tree for Library {
    fn apply(&mut self, op: &Op) -> Outcome {
        self.act(op).map_err(|error| error.errno())
    }
}
