//! Options for opening a file system, and for opening a file.

use crate::error;
use lanefs_device::{Device, FileDevice};
use lanefs_ext4::{Access, Atime, MasterKey, Recovery};
use lanefs_vfs::{Credentials, OpenFlags, VfsOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options for opening a file system. The default is read-write, as the superuser, with the
/// kernel's default options.
///
/// ```
/// use lanefs::{Atime, Credentials, OpenOptions};
/// use std::time::Duration;
///
/// let options = OpenOptions::new()
///     .credentials(Credentials::new(1000, 100, [27]))
///     .atime(Atime::Noatime)
///     .cache_bytes(64 << 20)
///     .commit_interval(Duration::from_secs(1));
/// let forensic = OpenOptions::new().without_recovery().offset(1 << 20);
/// ```
#[derive(Clone)]
pub struct OpenOptions {
    pub(crate) vfs: VfsOptions,
    pub(crate) offset: u64,
    pub(crate) len: Option<u64>,
    pub(crate) journal: Option<PathBuf>,
    pub(crate) credentials: Credentials,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Returns the defaults.
    pub fn new() -> OpenOptions {
        let (vfs, credentials) = (VfsOptions::default(), Credentials::superuser());
        OpenOptions { vfs, offset: 0, len: None, journal: None, credentials }
    }

    /// Opens read-only. Nothing is written: a dirty log is replayed in memory.
    pub fn read_only(mut self) -> OpenOptions {
        self.vfs.mount.access = Access::ReadOnly;
        self
    }

    /// Opens read-only and ignores the log (`norecovery`). This is meant for a damaged log, or to
    /// see the state that a crash left on the device. After a crash, the metadata may be
    /// inconsistent.
    pub fn without_recovery(mut self) -> OpenOptions {
        self.vfs.mount.recovery = Recovery::Skip;
        self.read_only()
    }

    /// Sets the byte of the image at which the file system starts, for a partition in a disk image.
    /// If the image has a partition table, the file system ends with its partition.
    pub fn offset(mut self, bytes: u64) -> OpenOptions {
        self.offset = bytes;
        self
    }

    /// Limits the file system to this many bytes of the image.
    pub fn len(mut self, bytes: u64) -> OpenOptions {
        self.len = Some(bytes);
        self
    }

    /// Sets the path of the image or block device that has the journal, for a file system whose
    /// journal is on another device (`mke2fs -J device=`). That device is locked like the image.
    pub fn journal_path(mut self, path: impl Into<PathBuf>) -> OpenOptions {
        self.journal = Some(path.into());
        self
    }

    /// Does the same as [`OpenOptions::journal_path`] for a journal device that is open already.
    pub fn journal_device(mut self, device: Arc<dyn Device>) -> OpenOptions {
        self.vfs.mount.journal = Some(device);
        self
    }

    /// Adds master keys of encrypted directories. Without its key, an encrypted directory shows
    /// encoded names, by which its files can be removed but not opened.
    pub fn keys(mut self, keys: &[MasterKey]) -> OpenOptions {
        self.vfs.mount.keys.extend_from_slice(keys);
        self
    }

    /// Sets the credentials with which all operations run. Their user owns new files.
    pub fn credentials(mut self, credentials: Credentials) -> OpenOptions {
        self.credentials = credentials;
        self
    }

    /// Sets in which cases reads change the access time.
    pub fn atime(mut self, atime: Atime) -> OpenOptions {
        self.vfs.mount.atime = atime;
        self
    }

    /// Sets the longest time from a change to its commit.
    pub fn commit_interval(mut self, interval: Duration) -> OpenOptions {
        self.vfs.mount.commit_interval = interval;
        self
    }

    /// Limits the memory of the caches, in bytes.
    pub fn cache_bytes(mut self, bytes: u64) -> OpenOptions {
        self.vfs.mount.cache_bytes = bytes;
        self
    }

    /// Sets the approximate number of names in the name cache.
    pub fn cached_names(mut self, names: usize) -> OpenOptions {
        self.vfs.names = Some(names);
        self
    }

    /// Returns the options of the mount. Opens the journal's device if its path is given.
    pub(crate) fn settings(&self) -> error::Result<VfsOptions> {
        let mut settings = self.vfs.clone();
        if let Some(path) = &self.journal {
            let device = FileDevice::open(path, self.access(), Default::default())?;
            settings.mount.journal = Some(Arc::new(device));
        }
        Ok(settings)
    }

    pub(crate) fn access(&self) -> lanefs_device::Access {
        match self.vfs.mount.access {
            Access::ReadOnly => lanefs_device::Access::ReadOnly,
            Access::ReadWrite => lanefs_device::Access::ReadWrite,
        }
    }
}

/// The umask of new files and directories, unless the caller gives another.
pub(crate) const UMASK: u16 = 0o022;

/// Options for opening a file, like [`std::fs::OpenOptions`] for files of the host.
///
/// ```
/// use lanefs::FileOptions;
/// let log = FileOptions::new().append(true).create(true).permissions(0o600);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    flags: OpenFlags,
    pub(crate) permissions: u16,
    /// `None` is [`UMASK`].
    pub(crate) umask: Option<u16>,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions::new()
    }
}

impl FileOptions {
    /// Returns options that permit neither reading nor writing. New files get permissions 0666 with
    /// the umask 022.
    pub fn new() -> FileOptions {
        FileOptions { flags: OpenFlags::empty(), permissions: 0o666, umask: None }
    }

    fn with(mut self, flags: OpenFlags, given: bool) -> FileOptions {
        self.flags.set(flags, given);
        self
    }

    /// Whether to open for reading.
    pub fn read(self, read: bool) -> FileOptions {
        self.with(OpenFlags::READ, read)
    }

    /// Whether to open for writing.
    pub fn write(self, write: bool) -> FileOptions {
        self.with(OpenFlags::WRITE, write)
    }

    /// Whether to open for writing at the end of the file.
    pub fn append(self, append: bool) -> FileOptions {
        self.with(OpenFlags::APPEND, append)
    }

    /// Whether to create the file if it does not exist.
    pub fn create(self, create: bool) -> FileOptions {
        self.with(OpenFlags::CREATE, create)
    }

    /// Whether to create the file, and to fail if it exists.
    pub fn create_new(self, create_new: bool) -> FileOptions {
        self.with(OpenFlags::EXCLUSIVE, create_new)
    }

    /// Whether to truncate the file.
    pub fn truncate(self, truncate: bool) -> FileOptions {
        self.with(OpenFlags::TRUNCATE, truncate)
    }

    /// Whether to fail if the file is not a directory.
    pub fn directory(self, directory: bool) -> FileOptions {
        self.with(OpenFlags::DIRECTORY, directory)
    }

    /// Whether to fail if the file is a symbolic link.
    pub fn no_follow(self, no_follow: bool) -> FileOptions {
        self.with(OpenFlags::NO_FOLLOW, no_follow)
    }

    /// Whether reads leave the access time as it is.
    pub fn no_atime(self, no_atime: bool) -> FileOptions {
        self.with(OpenFlags::NO_ATIME, no_atime)
    }

    /// Returns the flags with those that they imply, or why std would refuse them (`EINVAL`).
    pub(crate) fn all_flags(&self) -> Result<OpenFlags, &'static str> {
        let (mut flags, has) = (self.flags, |flags| self.flags.intersects(flags));
        let makes = OpenFlags::TRUNCATE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        if !has(OpenFlags::APPEND | makes) {
            return Ok(flags);
        }
        if !has(OpenFlags::WRITE | OpenFlags::APPEND) {
            return Err("it is not opened for writing");
        }
        if has(OpenFlags::EXCLUSIVE) {
            flags |= OpenFlags::CREATE;
        } else if has(OpenFlags::APPEND) && has(OpenFlags::TRUNCATE) {
            return Err("it is opened for appending");
        }
        Ok(flags | OpenFlags::WRITE)
    }

    /// Sets the low 12 bits of the mode of a new file, and an empty umask unless one was given.
    pub fn permissions(mut self, permissions: u16) -> FileOptions {
        self.permissions = permissions;
        self.umask.get_or_insert(0);
        self
    }

    /// Sets the bits that a new file does not get, unless its directory has a default access
    /// control list.
    pub fn umask(mut self, umask: u16) -> FileOptions {
        self.umask = Some(umask);
        self
    }
}
