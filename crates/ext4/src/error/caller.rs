//! The reasons for errors that the caller caused.

use lanefs_device::DeviceError;
use thiserror::Error;

/// Why an argument of an operation is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidArgument {
    /// The name is `.` or `..`, or case folding turns it into one of these.
    #[error("the name is . or ..")]
    DotName,
    /// The path ends in `.`.
    #[error("the path ends in .")]
    EndsInDot,
    /// The name has a slash or a NUL byte.
    #[error("the name has a slash or a NUL byte")]
    NameBytes,
    /// The directory accepts only names in UTF-8.
    #[error("the name is not UTF-8, and the directory accepts no other names")]
    NotUtf8,
    /// The path, or the target of a symbolic link, has a NUL byte.
    #[error("the path has a NUL byte")]
    PathBytes,
    /// The operation requires a regular file.
    #[error("it is not a regular file")]
    NotRegularFile,
    /// The operation requires a symbolic link.
    #[error("it is not a symbolic link")]
    NotSymlink,
    /// The operation requires a regular file or a directory.
    #[error("it is neither a regular file nor a directory")]
    NotFileOrDirectory,
    /// A directory would move into itself or into a directory below it.
    #[error("the directory would be within itself")]
    IntoItself,
    /// Opening a file cannot create this type of inode.
    #[error("open creates only regular files")]
    CreatesOnlyFiles,
    /// The file is opened for neither reading nor writing, or an unnamed file is not opened for
    /// writing.
    #[error("a file is opened for reading, for writing, or for both")]
    OpenMode,
    /// A mounted file system cannot get smaller.
    #[error("it is mounted, and only becomes larger")]
    Smaller,
    /// The length is zero.
    #[error("the length is zero")]
    ZeroLength,
    /// The range does not consist of whole clusters. (Without `bigalloc` a cluster is one block.)
    #[error("the range does not consist of whole blocks (with bigalloc: of whole clusters)")]
    PartialCluster,
    /// The range to collapse reaches the end of the file.
    #[error("the range to collapse reaches the end of the file")]
    CollapseToEnd,
    /// The range to insert starts at the end of the file or after it.
    #[error("the range to insert does not start inside the file")]
    InsertAfterEnd,
    /// The block size or the salt of a hash tree is invalid.
    #[error("the block size or the salt of the hash tree is not valid")]
    HashTree,
    /// The name of the extended attribute has no known prefix, or is too long.
    #[error("the name of the attribute is not valid")]
    AttributeName,
    /// The value is not an access control list.
    #[error("the access control list is not valid")]
    AccessList,
    /// A journal device was given, but the file system has no journal or an internal one.
    #[error("a journal device was given, and the journal is inside or absent")]
    NoJournalDevice,
    /// A journal can be attached only to a clean file system without a journal.
    #[error("the file system is not clean, or has a journal")]
    NotAttachable,
}

/// Why a file system cannot have the requested size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadSize {
    /// Lanefs does not resize the layout with two superblock backups (`sparse_super2`).
    #[error("a file system with sparse_super2 cannot be resized here")]
    SparseSuper2,
    /// Lanefs does not resize file systems with clusters of several blocks (`bigalloc`).
    #[error("a file system with bigalloc cannot be resized here")]
    Bigalloc,
    /// The groups would have more inodes than there are 32-bit inode numbers.
    #[error("{groups} groups would have more than 2^32 inodes")]
    TooManyInodes {
        /// The number of groups.
        groups: u64,
    },
    /// The resize inode reserves too few blocks for descriptors.
    #[error(
        "{more} more blocks of descriptors are needed, and the resize inode reserves {reserved}: \
         resize2fs can move blocks to make room"
    )]
    FewDescriptors {
        /// The number of descriptor blocks to add.
        more: u64,
        /// The number of blocks that are reserved for descriptors.
        reserved: u64,
    },
    /// The resize inode would have to refer to a block whose number needs more than 32 bits.
    #[error(
        "a backup of the descriptors would lie beyond block 2^32, where the resize inode cannot \
         reserve blocks: choose a smaller size"
    )]
    FarBackup,
    /// The new groups have no room for their metadata.
    #[error("a new group has no room for its metadata")]
    ShortGroup,
    /// The resize inode refers to blocks outside of the file system.
    #[error("the resize inode is damaged: check it with e2fsck -f")]
    ResizeInode,
}

/// Why a mounted file system cannot become larger.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum CannotGrow {
    /// The layout does not allow the new size.
    #[error(transparent)]
    Size(#[from] BadSize),
    /// The file system has no journal, so it can grow only while it is not mounted.
    #[error("without a journal it must not be mounted for that")]
    NoJournal,
    /// The device is too short, and could not be made longer.
    #[error("it needs {needs} bytes, and the device has {has}: {cause}")]
    ShortDevice {
        /// The length in bytes that the file system needs.
        needs: u64,
        /// The length of the device in bytes.
        has: u64,
        /// The reason why the device could not be made longer.
        cause: DeviceError,
    },
    /// Not even the smallest growth fits into one transaction.
    #[error(
        "the change takes {needs} blocks of the journal, and a transaction has at most {most}: \
         unmount the file system first"
    )]
    ShortLog {
        /// The number of journal blocks that the change needs.
        needs: u32,
        /// The largest number of journal blocks that a transaction can have.
        most: u32,
    },
}
