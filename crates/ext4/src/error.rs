//! What can go wrong, and whose fault it is.

use lanefs_device::DeviceError;
use lanefs_ondisk::{Corruption, Unsupported};
use thiserror::Error;

/// An operation on a file system failed. [`Error::errno`] is the one way to a system error number.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The image breaks the format: the image's fault.
    #[error("the file system is damaged: {0}")]
    Corruption(#[from] Corruption),
    /// The image is right but uses a feature that is not supported.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A block number on the disk leads outside the file system.
    #[error("the file system is damaged: {block} is outside of it")]
    OutsideFileSystem {
        /// The number.
        block: lanefs_ondisk::Block,
    },
    /// A block that belongs to the file system itself (superblock, descriptors, bitmaps, inode
    /// tables, journal) is claimed by an inode.
    #[error("the file system is damaged: {ino} claims {block}, which holds metadata")]
    ClaimsMetadata {
        /// The inode.
        ino: lanefs_ondisk::Ino,
        /// The block.
        block: lanefs_ondisk::Block,
    },
    /// The device is shorter than the file system on it.
    #[error("the image is truncated: it has {has} bytes, the file system needs {needs}")]
    TooShort {
        /// Bytes there are.
        has: u64,
        /// Bytes there should be.
        needs: u64,
    },
    /// There is not enough memory for the descriptors of all groups.
    #[error("the file system has more groups than there is memory for")]
    TooManyGroups,
    /// Two owners have one metadata block.
    #[error("the file system is damaged: {block} has two owners")]
    CrossLinked {
        /// The block.
        block: lanefs_ondisk::Block,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The journal failed, or was aborted earlier; carries the first cause.
    #[error(transparent)]
    Journal(#[from] lanefs_journal::Error),
    /// The file system is mounted read-only, or became so after an error.
    #[error("read-only file system")]
    ReadOnly,
    /// No such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// Not possible on a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// No free block or inode, or none for this caller.
    #[error("no space left on the file system")]
    NoSpace,
    /// A name of more than 255 bytes, or a symlink target of a block or more.
    #[error("name too long")]
    NameTooLong,
    /// The inode has all the links it can have.
    #[error("too many links")]
    TooManyLinks,
    /// An argument makes no sense; `what` names it.
    #[error("invalid argument: {what}")]
    InvalidArgument {
        /// The argument and what is wrong with it.
        what: &'static str,
    },
    /// Beyond the largest file the format can hold.
    #[error("file too large")]
    FileTooLarge,
    /// The operation does not exist for this kind of object.
    #[error("operation not supported")]
    NotSupported,
    /// The inode number no longer names what the caller held.
    #[error("stale file handle")]
    Stale,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The operation is not permitted to anybody here (an immutable file, say).
    #[error("operation not permitted")]
    NotPermitted,
    /// This caller may not.
    #[error("permission denied")]
    PermissionDenied,
    /// A directory would become its own ancestor, or too many symbolic links were followed.
    #[error("too many levels of symbolic links")]
    Loop,
    /// seek_data or seek_hole beyond the end.
    #[error("no such offset")]
    NoSuchOffset,
    /// The file was not opened for that.
    #[error("file not open for this")]
    BadDescriptor,
    /// The object is in use.
    #[error("device or resource busy")]
    Busy,
}

impl Error {
    /// The system's error number for it (Linux values).
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Error::Corruption(_)
            | Error::OutsideFileSystem { .. }
            | Error::ClaimsMetadata { .. }
            | Error::TooShort { .. }
            | Error::CrossLinked { .. } => return 117, // EUCLEAN, as the kernel's ext4 answers
            Error::Unsupported(_) | Error::NotSupported => Errno::OPNOTSUPP,
            Error::Device(_) => Errno::IO,
            Error::Journal(_) => Errno::IO,
            Error::ReadOnly => Errno::ROFS,
            Error::NotFound => Errno::NOENT,
            Error::Exists => Errno::EXIST,
            Error::NotDirectory => Errno::NOTDIR,
            Error::IsDirectory => Errno::ISDIR,
            Error::NotEmpty => Errno::NOTEMPTY,
            Error::NoSpace => Errno::NOSPC,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::TooManyLinks => Errno::MLINK,
            Error::InvalidArgument { .. } => Errno::INVAL,
            Error::FileTooLarge => Errno::FBIG,
            Error::TooManyGroups => Errno::NOMEM,
            Error::Stale => Errno::STALE,
            Error::NoAttribute => Errno::NODATA,
            Error::NotPermitted => Errno::PERM,
            Error::PermissionDenied => Errno::ACCESS,
            Error::Loop => Errno::LOOP,
            Error::NoSuchOffset => Errno::NXIO,
            Error::BadDescriptor => Errno::BADF,
            Error::Busy => Errno::BUSY,
        };
        errno.raw_os_error()
    }
}
