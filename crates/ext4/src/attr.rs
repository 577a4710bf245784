//! What stat(2) tells of an inode, and what can be set.

use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileType, Ino, Time};

/// An inode's attributes: a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub ino: Ino,
    /// Tells this inode from an earlier one of the same number.
    pub generation: u32,
    /// What it is.
    pub file_type: FileType,
    /// Permission bits with set-user-ID, set-group-ID and sticky: the low 12 bits of a mode.
    pub permissions: u16,
    /// Hard links.
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
    /// Last read.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation, where the inode is large enough to keep it.
    pub crtime: Option<Time>,
    /// The inode's flags as chattr knows them (`EXT4_*_FL`).
    pub flags: u32,
}

/// What decides who may use an inode: of its attributes those that hardly ever change, so that a
/// walk through a directory does not meet those who make names there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// The low 12 bits of the mode.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// As [`Attr::flags`]: immutable, append only, indexed.
    pub flags: u32,
}

impl Attr {
    /// The part that decides who may use the inode.
    pub fn rights(&self) -> Rights {
        let Attr { permissions, uid, gid, flags, .. } = *self;
        Rights { permissions, uid, gid, flags }
    }
}

impl lanefs_lanes::Words for Rights {
    type Array = [u64; 2];

    fn to_words(&self) -> [u64; 2] {
        let flags = u64::from(self.flags) << 32 | u64::from(self.permissions);
        [u64::from(self.uid) << 32 | u64::from(self.gid), flags]
    }

    fn from_words(words: [u64; 2]) -> Rights {
        let (uid, gid) = ((words[0] >> 32) as u32, words[0] as u32);
        Rights { permissions: words[1] as u16, uid, gid, flags: (words[1] >> 32) as u32 }
    }
}

/// As words, for the cell that stat reads without a lock.
impl lanefs_lanes::Words for Attr {
    type Array = [u64; 15];

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

    fn from_words(words: [u64; 15]) -> Attr {
        let high = |word: u64| (word >> 32) as u32;
        let low = |word: u64| word as u32;
        let time = |secs: usize| Time { secs: words[secs] as i64, nanos: low(words[secs + 4]) };
        let mode = low(words[1]) as u16;
        Attr {
            ino: Ino(high(words[0])),
            generation: low(words[0]),
            // Only ever what to_words gave, so the type is one.
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

/// In place of the nanoseconds of a time that is not kept.
const NO_TIME: u64 = u64::MAX;

impl Attr {
    /// The words, of [`lanefs_lanes::Words`], that some look at alone.
    pub(crate) const LINKS: usize = 2;
    pub(crate) const SIZE: usize = 4;
    pub(crate) const SECTORS: usize = 5;

    /// Type and permissions in one word, as stat(2) has it.
    pub fn mode(&self) -> u16 {
        self.file_type.mode_bits() | self.permissions
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rdev {
    /// Driver.
    pub major: u32,
    /// Unit.
    pub minor: u32,
}

/// What to change; `None` leaves it. `ctime` is set in any case.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttr {
    /// The low 12 bits of a mode; an access ACL follows.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New size in bytes: truncates or grows.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode; normally not given (restoring an image, or a kernel that keeps its own).
    pub ctime: Option<Time>,
    /// Creation.
    pub crtime: Option<Time>,
    /// Of the flags, those in [`CHANGEABLE_FLAGS`].
    pub flags: Option<u32>,
}

/// The flags that chattr(1) may change: a request each, not a fact about the inode.
pub const CHANGEABLE_FLAGS: u32 = InodeFlags::SECRM.bits()
    | InodeFlags::UNRM.bits()
    | InodeFlags::COMPR.bits()
    | InodeFlags::SYNC.bits()
    | InodeFlags::IMMUTABLE.bits()
    | InodeFlags::APPEND.bits()
    | InodeFlags::NODUMP.bits()
    | InodeFlags::NOATIME.bits()
    | InodeFlags::NOTAIL.bits()
    | InodeFlags::DIRSYNC.bits()
    | InodeFlags::TOPDIR.bits();

/// A time to set.
#[derive(Debug, Clone, Copy)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This one.
    At(Time),
}

/// A new inode, for [`crate::fs::Fs::create`].
#[derive(Debug, Clone, Copy)]
pub struct NewInode<'a> {
    /// What it will be; a symbolic link takes its target from here.
    pub kind: NewKind<'a>,
    /// The low 12 bits of the mode asked for.
    pub permissions: u16,
    /// Bits taken from `permissions` unless the directory has a default ACL.
    pub umask: u16,
    /// The creator.
    pub uid: u32,
    /// The creator's group; a set-group-ID directory gives its own instead.
    pub gid: u32,
}

/// The kind of a new inode.
#[derive(Debug, Clone, Copy)]
pub enum NewKind<'a> {
    /// An empty file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link to these bytes.
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
    /// The type of the inode it makes.
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

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode it names.
    pub ino: Ino,
    /// Its type, if the directory keeps it.
    pub file_type: Option<FileType>,
    /// The name: any bytes but `/` and NUL.
    pub name: &'a [u8],
    /// Where to go on after this entry: a cookie for [`crate::fs::Fs::read_dir`].
    pub next: u64,
}

/// What rename(2) does with an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// Replaces it.
    Replace,
    /// Fails with [`crate::error::Error::Exists`].
    NoReplace,
    /// Swaps the two names.
    Exchange,
}

/// What setxattr(2) does about an attribute that is there, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Creates or replaces.
    Any,
    /// Fails with [`crate::error::Error::Exists`] if it is there.
    Create,
    /// Fails with [`crate::error::Error::NoAttribute`] if it is not.
    Replace,
}

/// What fallocate(2) does with the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocates; the size grows to cover the range.
    Allocate,
    /// Allocates; the size stays.
    AllocateKeepSize,
    /// Frees; the size stays.
    PunchHole,
    /// Reads as zeros afterwards; the size grows to cover the range.
    ZeroRange,
    /// Reads as zeros afterwards; the size stays.
    ZeroRangeKeepSize,
}

/// What [`crate::fs::Fs::seek`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is allocated and written.
    Data,
    /// The next byte that is not; the end of the file counts.
    Hole,
}

/// How much of a file fsync(2) forces out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Data and everything about the inode.
    Full,
    /// Data and what is needed to read it back.
    Data,
}

/// Space and inodes, as statfs(2) counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks that files can use in all: without the overhead (`minixdf` off, as the kernel's default).
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks less those reserved for root and for extent trees.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Identifies the file system (folded from its UUID).
    pub fsid: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_lanes::Words;

    #[test]
    fn attributes_survive_the_way_through_words() {
        let time = |secs| Time { secs, nanos: 999_999_999 };
        let attr = Attr {
            ino: Ino(u32::MAX),
            generation: 7,
            file_type: FileType::Socket,
            permissions: 0o7777,
            links: 65000,
            uid: u32::MAX,
            gid: 1 << 31,
            size: u64::MAX,
            sectors: 1 << 50,
            rdev: Rdev { major: 0xfff, minor: 0xf_ffff },
            atime: time(-(1 << 31)),
            mtime: time((1 << 34) - (1 << 31) - 1),
            ctime: time(0),
            crtime: None,
            flags: u32::MAX,
        };
        assert_eq!(Attr::from_words(attr.to_words()), attr);
        assert_eq!(Rights::from_words(attr.rights().to_words()), attr.rights());
        assert_eq!(attr.to_words()[Attr::LINKS] >> 32, 65000);
        assert_eq!(attr.to_words()[Attr::SIZE], u64::MAX);
        assert_eq!(attr.to_words()[Attr::SECTORS], 1 << 50);
        let with = Attr { crtime: Some(time(5)), ..attr };
        assert_eq!(Attr::from_words(with.to_words()), with);
    }
}
