//! The attributes that stat(2) returns for an inode, and those that can be set.

use lanefs_lanes::NameKey;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileType, Ino, Time};

/// A snapshot of an inode's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub ino: Ino,
    /// Distinguishes this inode from earlier ones with the same number.
    pub generation: u32,
    /// The file type.
    pub file_type: FileType,
    /// Permission bits with set-user-ID, set-group-ID and sticky: the low 12 bits of a mode.
    pub permissions: u16,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    /// Device number of a device inode, else 0/0.
    pub rdev: Rdev,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last change of the data.
    pub mtime: Time,
    /// Time of the last change of the inode.
    pub ctime: Time,
    /// Time of creation, if the inode is large enough to store it.
    pub crtime: Option<Time>,
    /// The inode's flags as chattr shows them (`EXT4_*_FL`).
    pub flags: u32,
}

/// The attributes that decide access to an inode. They hardly ever change, so a path walk that
/// reads them does not contend with threads that create names in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// The low 12 bits of the mode.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The same as [`Attr::flags`], for example immutable, append-only, indexed.
    pub flags: u32,
}

impl Attr {
    /// Returns the attributes that decide access to the inode.
    pub fn rights(&self) -> Rights {
        let Attr { permissions, uid, gid, flags, .. } = *self;
        Rights { permissions, uid, gid, flags }
    }
}

impl lanefs_lanes::Words for Rights {
    type Array = [u64; 2];

    #[inline]
    fn to_words(&self) -> [u64; 2] {
        let flags = u64::from(self.flags) << 32 | u64::from(self.permissions);
        [u64::from(self.uid) << 32 | u64::from(self.gid), flags]
    }

    #[inline]
    fn from_words(words: [u64; 2]) -> Rights {
        let (uid, gid) = ((words[0] >> 32) as u32, words[0] as u32);
        Rights { permissions: words[1] as u16, uid, gid, flags: (words[1] >> 32) as u32 }
    }
}

/// Encodes the attributes as words, for the cell that stat reads without a lock.
impl lanefs_lanes::Words for Attr {
    type Array = [u64; 15];

    #[inline]
    fn to_words(&self) -> [u64; 15] {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let time = |time: Time| [time.secs as u64, u64::from(time.nanos)];
        let [atime, mtime, ctime] = [self.atime, self.mtime, self.ctime].map(time);
        let crtime = self.crtime.map_or([0, NO_TIME], time);
        [
            pair(self.ino.0, self.generation),
            pair(self.flags, u32::from(self.mode())),
            pair(self.links, self.uid), // Attr::LINKS
            pair(self.gid, 0),
            self.size,    // Attr::SIZE
            self.sectors, // Attr::SECTORS
            pair(self.rdev.major, self.rdev.minor),
            atime[0],
            mtime[0],
            ctime[0],
            crtime[0],
            atime[1],
            mtime[1],
            ctime[1],
            crtime[1],
        ]
    }

    #[inline]
    fn from_words(words: [u64; 15]) -> Attr {
        let high = |word: u64| (word >> 32) as u32;
        let low = |word: u64| word as u32;
        let time = |secs: usize| Time { secs: words[secs] as i64, nanos: low(words[secs + 4]) };
        let mode = low(words[1]) as u16;
        Attr {
            ino: Ino(high(words[0])),
            generation: low(words[0]),
            // The words always come from `to_words`, so the type is valid.
            file_type: FileType::from_mode(mode).unwrap_or(FileType::Regular),
            permissions: mode & 0xfff,
            links: high(words[2]),
            uid: low(words[2]),
            gid: high(words[3]),
            size: words[4],
            sectors: words[5],
            rdev: Rdev { major: high(words[6]), minor: low(words[6]) },
            atime: time(7),
            mtime: time(8),
            ctime: time(9),
            crtime: (words[14] != NO_TIME).then(|| time(10)),
            flags: high(words[1]),
        }
    }
}

/// The word for the nanoseconds of `crtime`, if the inode does not store `crtime`.
const NO_TIME: u64 = u64::MAX;

impl Attr {
    /// The indexes of those words of [`lanefs_lanes::Words`] that are also read separately.
    pub(crate) const LINKS: usize = 2;
    pub(crate) const SIZE: usize = 4;

    /// Returns the words that hold the link count, `mtime` and `ctime`, each with its index.
    #[inline(always)] // so that no other word is computed
    pub(crate) fn names_changed(&self) -> [(usize, u64); 5] {
        let words = lanefs_lanes::Words::to_words(self);
        let word = |at: usize| (at, words[at]);
        [word(Attr::LINKS), word(8), word(9), word(12), word(13)]
    }

    /// Returns type and permissions in one word, as in stat(2).
    pub fn mode(&self) -> u16 {
        self.file_type.mode_bits() | self.permissions
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rdev {
    /// Major number: the driver.
    pub major: u32,
    /// Minor number: the unit.
    pub minor: u32,
}

/// The attributes to change; `None` leaves an attribute unchanged, except `ctime`, which is set in
/// any case.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttr {
    /// The low 12 bits of a mode; an access ACL is changed to match.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New size in bytes: truncates or extends the file.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: Option<SetTime>,
    /// Time of the last change of the data.
    pub mtime: Option<SetTime>,
    /// Time of the last change of the inode. `None` sets the time of the call. Another time is
    /// given when an image is restored, or by a kernel that keeps the times itself.
    pub ctime: Option<Time>,
    /// Time of creation.
    pub crtime: Option<Time>,
    /// New flags; those outside of [`CHANGEABLE_FLAGS`] are ignored.
    pub flags: Option<u32>,
    /// Whether the directory ignores case, like the flag `F` of chattr(1). Fails if the directory
    /// is not empty, and with [`crate::Error::NotSupported`] if the file system has no
    /// feature `casefold`.
    pub casefold: Option<bool>,
    /// Project. Fails with [`crate::Error::NotSupported`] if the file system has no feature
    /// `project`, or the inode has no room for the id.
    pub project: Option<u32>,
}

/// The flags that chattr(1) may change. Each of them is a setting that the user chooses, not a
/// property of the inode's format. `JOURNAL_DATA`, which the kernel's ext4 may have set, can only
/// be cleared.
pub const CHANGEABLE_FLAGS: u32 = InodeFlags::SECRM.bits()
    | InodeFlags::UNRM.bits()
    | InodeFlags::COMPR.bits()
    | InodeFlags::SYNC.bits()
    | InodeFlags::IMMUTABLE.bits()
    | InodeFlags::APPEND.bits()
    | InodeFlags::NODUMP.bits()
    | InodeFlags::NOATIME.bits()
    | InodeFlags::JOURNAL_DATA.bits()
    | InodeFlags::NOTAIL.bits()
    | InodeFlags::DIRSYNC.bits()
    | InodeFlags::TOPDIR.bits()
    | InodeFlags::PROJINHERIT.bits();

/// A time to set.
#[derive(Debug, Clone, Copy)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// The given time.
    At(Time),
}

/// A new inode, for [`crate::Fs::create`].
#[derive(Debug, Clone, Copy)]
pub struct NewInode<'a> {
    /// The file type, with the target of a symbolic link.
    pub kind: NewKind<'a>,
    /// The low 12 bits of the requested mode.
    pub permissions: u16,
    /// Bits removed from `permissions` unless the directory has a default ACL.
    pub umask: u16,
    /// The creator.
    pub uid: u32,
    /// The creator's group; in a set-group-ID directory the directory's group is used instead.
    pub gid: u32,
}

/// The kind of a new inode.
#[derive(Debug, Clone, Copy)]
pub enum NewKind<'a> {
    /// An empty file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A character device.
    CharDevice(Rdev),
    /// A block device.
    BlockDevice(Rdev),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl NewKind<'_> {
    /// Returns the type of the inode.
    pub fn file_type(&self) -> FileType {
        match self {
            NewKind::Regular => FileType::Regular,
            NewKind::Directory => FileType::Directory,
            NewKind::Symlink(_) => FileType::Symlink,
            NewKind::CharDevice(_) => FileType::CharDevice,
            NewKind::BlockDevice(_) => FileType::BlockDevice,
            NewKind::Fifo => FileType::Fifo,
            NewKind::Socket => FileType::Socket,
        }
    }
}

/// How rename(2) treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// Replaces the target.
    Replace,
    /// Fails with [`crate::Error::Exists`].
    NoReplace,
    /// Swaps the two names.
    Exchange,
    /// Replaces the target, and leaves a whiteout with this owner at the old name: a character
    /// device 0/0, which tells overlayfs to hide the file with this name in the layers below.
    Whiteout {
        /// Owner.
        uid: u32,
        /// Group; in a set-group-ID directory the directory's group is used instead.
        gid: u32,
    },
    /// Does the same as [`Rename::Whiteout`], but fails with [`crate::Error::Exists`] if
    /// the target exists.
    WhiteoutNoReplace {
        /// As in [`Rename::Whiteout`].
        uid: u32,
        /// As in [`Rename::Whiteout`].
        gid: u32,
    },
}

impl Rename {
    /// Returns whether an existing target is an error.
    pub fn needs_free_name(self) -> bool {
        matches!(self, Rename::NoReplace | Rename::WhiteoutNoReplace { .. })
    }

    /// Returns the inode that takes the old name.
    pub(crate) fn whiteout(self) -> Option<NewInode<'static>> {
        let (Rename::Whiteout { uid, gid } | Rename::WhiteoutNoReplace { uid, gid }) = self else {
            return None;
        };
        let kind = NewKind::CharDevice(Rdev::default());
        Some(NewInode { kind, permissions: 0, umask: 0, uid, gid })
    }
}

/// What fallocate(2) does with the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocates blocks; the size grows to cover the range.
    Allocate,
    /// Allocates blocks; the size stays.
    AllocateKeepSize,
    /// Frees blocks; the size stays.
    PunchHole,
    /// Makes the range read as zeros; the size grows to cover the range.
    ZeroRange,
    /// Makes the range read as zeros; the size stays.
    ZeroRangeKeepSize,
    /// Removes the range, which consists of whole clusters and ends before the end of the file; the
    /// bytes after the range move to its start. After a crash the file is either unchanged or
    /// changed completely.
    CollapseRange,
    /// Inserts a hole, which consists of whole clusters and starts inside the file; the bytes from
    /// the hole's start on move to the hole's end. After a crash the file is either unchanged or
    /// changed completely.
    InsertRange,
}

bitflags::bitflags! {
    /// The properties of a [`FileExtent`], with the values of `FIEMAP_EXTENT_*` in Linux.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ExtentFlags: u32 {
        /// The file has no extent after this one.
        const LAST = 0x1;
        /// The offset on the device is not a multiple of the block size.
        const NOT_ALIGNED = 0x100;
        /// The data is in the inode.
        const DATA_INLINE = 0x200;
        /// The space is allocated and reads as zeros.
        const UNWRITTEN = 0x800;
        /// The file maps its blocks one by one; this extent was merged from adjacent blocks.
        const MERGED = 0x1000;
    }
}

/// An extent of a file: bytes that are contiguous in the file and on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileExtent {
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The offset on the device, in bytes.
    pub place: u64,
    /// The length in bytes.
    pub len: u64,
    /// The properties.
    pub flags: ExtentFlags,
}

/// The target of [`crate::Fs::seek`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is allocated and written.
    Data,
    /// The next byte that is not allocated or not written; the end of the file counts as a hole.
    Hole,
}

/// The parts of a file that fsync(2) makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// The data and all attributes.
    Full,
    /// The data and the attributes that are needed to read the data back.
    Data,
}

/// Space and inodes, as statfs(2) counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Total blocks that files can use, without the overhead (as in the kernel with its default
    /// mount option `bsddf`).
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks without the blocks that are reserved for root and for extent trees.
    pub blocks_available: u64,
    /// Total inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Identifies the file system (folded from its UUID).
    pub fsid: u64,
}

// The interface to the name cache of the upper layer: its keys and values, and what it is told.

/// Identifies a directory, and distinguishes it from earlier directories with the same inode
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirId {
    /// The inode number.
    pub ino: Ino,
    /// The generation of the inode.
    pub generation: u32,
}

impl DirId {
    /// Returns a hash of `name` in this directory, for caches of names.
    #[inline]
    pub fn hash_of(self, name: &[u8], key: NameKey) -> u64 {
        self.join(key.hash(name), key)
    }

    /// Does the same as [`DirId::hash_of`] for a name whose hash is known ([`NameKey::hash`]).
    #[inline]
    pub fn join(self, name: u64, key: NameKey) -> u64 {
        key.join(name, u64::from(self.ino.0) << 32 | u64::from(self.generation))
    }
}

/// The inode that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The inode number.
    pub ino: Ino,
    /// The file type.
    pub file_type: FileType,
}

/// Receives the names that are read or changed. The caller holds the directory's operation lock. To
/// publish a change, it holds this lock exclusively, or holds it shared together with the guard of
/// the one block that changes. To publish the result of a look-up that missed, it holds the lock
/// shared. So the cached entries are never older than the directory, and a thread that sees a
/// changed block finds the changed names in the cache.
pub trait Names: Send + Sync {
    /// Records that `name` in `dir` refers to `entry` from now on, or that it does not exist.
    fn publish(&self, dir: DirId, name: &[u8], entry: Option<Named>) {
        self.publish_read(dir, name, entry, &|| true);
    }
    /// Does the same as [`Names::publish`] for a caller that only read the entry. Does nothing if
    /// `still` returns false, that is, if the directory has changed since the entry was read. No
    /// other publication of this name comes between the call of `still` and this publication. A
    /// caller that changes a name must change the directory before it publishes the name, so that
    /// the `still` of each reader returns false.
    fn publish_read(&self, dir: DirId, name: &[u8], entry: Option<Named>, still: &dyn Fn() -> bool);
    /// Notes that the directory is deleted.
    fn forget(&self, dir: DirId);
}

/// Implements [`Names`] without keeping any name.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn publish_read(&self, _: DirId, _: &[u8], _: Option<Named>, _: &dyn Fn() -> bool) {}
    fn forget(&self, _: DirId) {}
}

// The clock for the times of inodes.

/// Returns the time of the last clock tick as an inode stores it.
pub(crate) fn now() -> Time {
    let now = lanefs_lanes::coarse_now();
    Time { secs: now.secs, nanos: now.nanos }
}

#[cfg(test)]
mod tests;
