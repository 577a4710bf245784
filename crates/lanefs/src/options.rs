//! How a file system, and a file in it, is opened.

use lanefs_ext4::{Access, Atime, Policies, Recovery};
use lanefs_vfs::{Credentials, NameCachePolicy, OpenFlags, VfsOptions};
use std::time::Duration;

/// How to open a file system: read-write, as the superuser, with the kernel's defaults, unless said
/// otherwise.
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
    pub(crate) credentials: Credentials,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> OpenOptions {
        let (vfs, credentials) = (VfsOptions::default(), Credentials::superuser());
        OpenOptions { vfs, offset: 0, len: None, credentials }
    }

    /// Nothing is written, not even to replay a log: that is done in memory.
    pub fn read_only(mut self) -> OpenOptions {
        self.vfs.mount.access = Access::ReadOnly;
        self
    }

    /// A dirty log is left as it is, and nothing is written (`norecovery`).
    pub fn without_recovery(mut self) -> OpenOptions {
        self.vfs.mount.recovery = Recovery::Skip;
        self.read_only()
    }

    /// The file system starts at this byte of the image, as in a partition.
    pub fn offset(mut self, bytes: u64) -> OpenOptions {
        self.offset = bytes;
        self
    }

    /// The file system has at most this many bytes of the image.
    pub fn len(mut self, bytes: u64) -> OpenOptions {
        self.len = Some(bytes);
        self
    }

    /// The user that the operations run as, and that owns what they make.
    pub fn credentials(mut self, credentials: Credentials) -> OpenOptions {
        self.credentials = credentials;
        self
    }

    /// When reads set the access time.
    pub fn atime(mut self, atime: Atime) -> OpenOptions {
        self.vfs.mount.atime = atime;
        self
    }

    /// The longest time from a change to its commit.
    pub fn commit_interval(mut self, interval: Duration) -> OpenOptions {
        self.vfs.mount.commit_interval = interval;
        self
    }

    /// How much memory the caches may take, in bytes.
    pub fn cache_bytes(mut self, bytes: u64) -> OpenOptions {
        self.vfs.mount.cache_bytes = bytes;
        self
    }

    /// Sets the locking policies: today's, or those of older kernels, for comparison
    /// (`docs/seeds.md`).
    pub fn policies(mut self, policies: Policies) -> OpenOptions {
        self.vfs.mount.policies = policies;
        self
    }

    /// Which name cache to use, and for about how many names.
    pub fn name_cache(mut self, policy: NameCachePolicy, names: usize) -> OpenOptions {
        self.vfs.mount.policies.name_cache = policy;
        self.vfs.names = Some(names);
        self
    }

    pub(crate) fn access(&self) -> lanefs_device::Access {
        match self.vfs.mount.access {
            Access::ReadOnly => lanefs_device::Access::ReadOnly,
            Access::ReadWrite => lanefs_device::Access::ReadWrite,
        }
    }
}

/// How to open a file, as [`std::fs::OpenOptions`] does on the host.
///
/// ```
/// use lanefs::FileOptions;
/// let log = FileOptions::new().append().create().permissions(0o600);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    pub(crate) flags: OpenFlags,
    pub(crate) permissions: u16,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions::new()
    }
}

impl FileOptions {
    /// Nothing yet: neither to be read nor written. A file that is made gets permissions 0644.
    pub fn new() -> FileOptions {
        FileOptions { flags: OpenFlags::empty(), permissions: 0o644 }
    }

    fn with(mut self, flags: OpenFlags) -> FileOptions {
        self.flags |= flags;
        self
    }

    /// To be read.
    pub fn read(self) -> FileOptions {
        self.with(OpenFlags::READ)
    }

    /// To be written.
    pub fn write(self) -> FileOptions {
        self.with(OpenFlags::WRITE)
    }

    /// To be written, each write at the end.
    pub fn append(self) -> FileOptions {
        self.with(OpenFlags::WRITE | OpenFlags::APPEND)
    }

    /// Made if it is not there.
    pub fn create(self) -> FileOptions {
        self.with(OpenFlags::CREATE)
    }

    /// Made; an error if it is there.
    pub fn create_new(self) -> FileOptions {
        self.with(OpenFlags::CREATE | OpenFlags::EXCLUSIVE)
    }

    /// Emptied.
    pub fn truncate(self) -> FileOptions {
        self.with(OpenFlags::TRUNCATE)
    }

    /// An error if it is not a directory.
    pub fn directory(self) -> FileOptions {
        self.with(OpenFlags::DIRECTORY)
    }

    /// An error if it is a symbolic link.
    pub fn no_follow(self) -> FileOptions {
        self.with(OpenFlags::NO_FOLLOW)
    }

    /// Reads leave the access time alone.
    pub fn no_atime(self) -> FileOptions {
        self.with(OpenFlags::NO_ATIME)
    }

    /// The low 12 bits of the mode that a new file gets.
    pub fn permissions(mut self, permissions: u16) -> FileOptions {
        self.permissions = permissions;
        self
    }
}
