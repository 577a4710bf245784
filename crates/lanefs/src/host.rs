//! A tree of the host, as a copy walks it.

use crate::error::{Cause, Result};
use lanefs_ext4::Attr;
use lanefs_ondisk::Time;
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, Timespec, Timestamps, futimens, mkdirat, openat, readlinkat,
    symlinkat, utimensat,
};
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The permissions that a copy from or to the host keeps: its owner is another one.
pub(crate) const KEPT: u16 = 0o1777;

/// A place in a tree of the host. Names are looked up in the open directory. So no path is too
/// long, and a symbolic link that takes a directory's place leads nowhere. At the start there is no
/// directory, and a name may be a path.
#[derive(Default)]
pub(crate) struct HostTree {
    /// The open directory, after those above it.
    dirs: Vec<File>,
    /// Its path, for messages.
    path: PathBuf,
}

/// A file of any type that was found but not opened: opening a pipe or device does something. As
/// long as this exists, the inode number is not used again.
pub(crate) struct Found {
    pub metadata: Metadata,
    handle: File,
}

impl HostTree {
    fn at(&self) -> BorrowedFd<'_> {
        self.dirs.last().map_or(CWD, AsFd::as_fd)
    }

    /// Adds the path of `name` to an error of the host.
    pub fn on<T, E: Into<io::Error>>(
        &self,
        name: &OsStr,
        result: std::result::Result<T, E>,
    ) -> Result<T> {
        let path = || self.path.join(name);
        result.map_err(|error| Cause::Host { path: path(), source: error.into() }.into())
    }

    fn open(&self, name: &OsStr, flags: OFlags) -> Result<File> {
        let mode = Mode::RUSR | Mode::WUSR;
        self.on(name, openat(self.at(), name, flags | OFlags::CLOEXEC, mode)).map(File::from)
    }

    /// Finds `name`; a symbolic link itself.
    pub fn find(&self, name: &OsStr) -> Result<Found> {
        let handle = self.open(name, OFlags::PATH | OFlags::NOFOLLOW)?;
        Ok(Found { metadata: self.on(name, handle.metadata())?, handle })
    }

    /// Opens the regular file `name`, which was `found`.
    pub fn open_found(&self, name: &OsStr, found: &Found) -> Result<File> {
        let file = self.open(name, OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        let of = |file: &Metadata| (file.dev(), file.ino(), file.file_type());
        let same = of(&found.metadata) == of(&self.on(name, file.metadata())?);
        let replaced = || io::Error::other("it was replaced meanwhile");
        self.on(name, same.then_some(file).ok_or_else(replaced))
    }

    pub fn read_link(&self, name: &OsStr, found: &Found) -> Result<CString> {
        self.on(name, readlinkat(&found.handle, "", Vec::new()))
    }

    /// Enters the directory `name`, which was `found`.
    pub fn enter(&mut self, name: &OsStr, found: &Found) -> Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = self.on(name, openat(&found.handle, ".", flags, Mode::empty()))?;
        self.dirs.push(dir.into());
        self.path.push(name);
        Ok(())
    }

    /// Goes back to the directory above. Gives the one that is left the attributes `attr`.
    pub fn leave(&mut self, attr: Option<&Attr>) -> Result<()> {
        if let (Some(dir), Some(attr)) = (self.dirs.pop(), attr) {
            self.settle("".as_ref(), &dir, attr)?;
        }
        self.path.pop();
        Ok(())
    }

    /// Returns the names of the directory's entries.
    pub fn names(&self) -> Result<Vec<OsString>> {
        let this = OsStr::new("");
        let mut names = Vec::new();
        for entry in self.on(this, Dir::read_from(self.at()))? {
            let entry = self.on(this, entry)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// Makes the directory `name`, closed to others until it has its own permissions, and enters
    /// it. A top that is there already is entered too. Returns whether the directory is new.
    pub fn make_dir(&mut self, name: &OsStr) -> Result<bool> {
        let made = mkdirat(self.at(), name, Mode::RWXU);
        let is_top = self.dirs.is_empty() && made == Err(Errno::EXIST) && Path::new(name).is_dir();
        let found = if is_top {
            self.find(Path::new(name).join(".").as_ref())?
        } else {
            self.on(name, made)?;
            self.find(name)?
        };
        self.enter(name, &found)?;
        Ok(!is_top)
    }

    /// Makes the regular file `name`, closed to others until it has its own permissions.
    pub fn make_file(&self, name: &OsStr) -> Result<File> {
        self.open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    /// Makes the symbolic link `name`, with the times of `attr`.
    pub fn make_link(&self, name: &OsStr, target: &[u8], attr: &Attr) -> Result<()> {
        self.on(name, symlinkat(target, self.at(), name))?;
        self.on(name, utimensat(self.at(), name, &times(attr), AtFlags::SYMLINK_NOFOLLOW))
    }

    /// Gives a file or directory its permissions and times.
    pub fn settle(&self, name: &OsStr, file: &File, attr: &Attr) -> Result<()> {
        let permissions = Permissions::from_mode((attr.permissions & KEPT).into());
        self.on(name, file.set_permissions(permissions))?;
        self.on(name, futimens(file, &times(attr)))
    }
}

fn times(attr: &Attr) -> Timestamps {
    let time = |time: Time| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
    Timestamps { last_access: time(attr.atime), last_modification: time(attr.mtime) }
}

#[cfg(test)]
mod tests;
