//! Types that keep numbers of different kinds apart.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A physical block number, counted from the start of the file system in units of its block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Block(pub u64);

/// A logical block number within one file, in units of the block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileBlock(pub u32);

/// An inode number; 0 means no inode, 1 is the first inode of group 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ino(pub u32);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(2);
    /// The inode that reserves descriptor blocks, so that the file system can grow.
    pub const RESIZE: Ino = Ino(7);
    /// The journal.
    pub const JOURNAL: Ino = Ino(8);
}

/// A block group number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Group(pub u32);

/// A block size: a power of two from 1 KiB to 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockSize(u32);

impl BlockSize {
    /// Returns `bytes` as a block size, or `None` if it is invalid.
    pub fn new(bytes: u32) -> Option<BlockSize> {
        (bytes.is_power_of_two() && (1024..=65536).contains(&bytes)).then_some(BlockSize(bytes))
    }

    /// Returns the size in bytes.
    pub fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Returns the largest number of blocks that a group can have: one for each bit of a block, but
    /// at most 65,528, the largest multiple of 8 that the 16-bit count of free blocks in a small
    /// group descriptor can hold.
    pub fn most_blocks_per_group(self) -> u32 {
        (self.0 * 8).min(COUNTS - 8)
    }

    /// Returns the largest number of inodes that a group can have if a block of the inode table
    /// holds `per_block` inodes: one for each bit of a block, but at most 65,536 minus `per_block`,
    /// as in mke2fs.
    pub fn most_inodes_per_group(self, per_block: u32) -> u32 {
        (self.0 * 8).min(COUNTS.saturating_sub(per_block))
    }

    /// Returns the base-2 logarithm of the size in bytes.
    pub fn bits(self) -> u32 {
        self.0.trailing_zeros()
    }
}

/// The number of different values that a 16-bit count can have.
const COUNTS: u32 = 1 << 16;

/// A point in time in an inode: seconds since 1970, and nanoseconds within the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC, from -2^31 to 2^34 - 2^31 - 1 (year 2446) on 256-byte inodes.
    pub secs: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

impl Time {
    /// Returns the present time by the host's clock.
    pub fn now() -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
    }
}

/// The type of an inode, with the top four bits of its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    Regular = 0x8,
    /// A directory.
    Directory = 0x4,
    /// A symbolic link.
    Symlink = 0xa,
    /// A character device.
    CharDevice = 0x2,
    /// A block device.
    BlockDevice = 0x6,
    /// A named pipe.
    Fifo = 0x1,
    /// A UNIX-domain socket.
    Socket = 0xc,
}

impl FileType {
    /// True for a directory.
    pub fn is_dir(self) -> bool {
        self == FileType::Directory
    }

    /// True for a regular file.
    pub fn is_file(self) -> bool {
        self == FileType::Regular
    }

    /// True for a symbolic link.
    pub fn is_symlink(self) -> bool {
        self == FileType::Symlink
    }

    /// Returns the type in the top four bits of `mode`, as in stat(2).
    #[inline]
    pub fn from_mode(mode: u16) -> Option<FileType> {
        const TYPES: [Option<FileType>; 16] = {
            let mut types = [None; 16];
            types[0x1] = Some(FileType::Fifo);
            types[0x2] = Some(FileType::CharDevice);
            types[0x4] = Some(FileType::Directory);
            types[0x6] = Some(FileType::BlockDevice);
            types[0x8] = Some(FileType::Regular);
            types[0xa] = Some(FileType::Symlink);
            types[0xc] = Some(FileType::Socket);
            types
        };
        TYPES[usize::from(mode >> 12)]
    }

    /// Returns the top four bits of a mode.
    pub fn mode_bits(self) -> u16 {
        (self as u16) << 12
    }

    /// Decodes the type from the byte in a directory entry (feature `filetype`); returns `None` for
    /// 0, which means unknown.
    pub fn from_dirent(byte: u8) -> Option<FileType> {
        Some(match byte {
            1 => FileType::Regular,
            2 => FileType::Directory,
            3 => FileType::CharDevice,
            4 => FileType::BlockDevice,
            5 => FileType::Fifo,
            6 => FileType::Socket,
            7 => FileType::Symlink,
            _ => return None,
        })
    }

    /// Returns the byte that stands for the type in a directory entry.
    pub fn dirent_byte(self) -> u8 {
        match self {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::CharDevice => 3,
            FileType::BlockDevice => 4,
            FileType::Fifo => 5,
            FileType::Socket => 6,
            FileType::Symlink => 7,
        }
    }
}

/// The kind of a block of the log (jbd2) itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Lists the blocks whose copies follow it.
    Descriptor = 1,
    /// Ends a transaction.
    Commit = 2,
    /// A superblock of the old form, which has no features.
    SuperblockV1 = 3,
    /// A superblock of the form that has features.
    SuperblockV2 = 4,
    /// Lists blocks whose copies in this or an earlier transaction must not be replayed.
    Revoke = 5,
}

impl BlockKind {
    /// Decodes the kind from the number in a block's header.
    pub(crate) fn from_number(number: u32) -> Option<BlockKind> {
        Some(match number {
            1 => BlockKind::Descriptor,
            2 => BlockKind::Commit,
            3 => BlockKind::SuperblockV1,
            4 => BlockKind::SuperblockV2,
            5 => BlockKind::Revoke,
            _ => return None,
        })
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

impl fmt::Display for FileBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file block {}", self.0)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}", self.0)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_group_are_those_of_mke2fs() {
        let limits = |bytes, inode_size| {
            let size = BlockSize::new(bytes).expect("a block size");
            (size.most_blocks_per_group(), size.most_inodes_per_group(bytes / inode_size))
        };
        assert_eq!(limits(1024, 256), (8192, 8192));
        assert_eq!(limits(4096, 256), (32768, 32768));
        assert_eq!(limits(8192, 256), (65528, 65504));
        assert_eq!(limits(65536, 256), (65528, 65280));
        assert_eq!(limits(65536, 128), (65528, 65024));
    }
}
