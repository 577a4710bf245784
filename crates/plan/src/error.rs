//! The errors of operations, and the party that caused them: image, device or caller.

use lanefs_device::DeviceError;
use lanefs_ondisk::{BadSize, Block, Corruption, Dashed, Ino, UnfitJournal, Unsupported};
use std::panic::Location;
use thiserror::Error;

/// The error of a failed operation. Only [`Error::errno`] converts it to a system error number.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The image violates the format, so the file system is damaged.
    #[error("the file system is damaged: {0}")]
    Corruption(#[from] Corruption),
    /// The image is valid but uses a feature that is not supported.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A block number on the disk is outside of the file system.
    #[error("the file system is damaged: {block} is outside of it")]
    OutsideFileSystem {
        /// The block number.
        block: Block,
    },
    /// An inode maps a block that belongs to the file system itself (superblock, descriptors,
    /// bitmaps, inode tables, journal).
    #[error("the file system is damaged: {ino} claims {block}, which holds metadata")]
    ClaimsMetadata {
        /// The inode number.
        ino: Ino,
        /// The block number.
        block: Block,
    },
    /// The device is shorter than the file system on it.
    #[error("the image is truncated: it has {has} bytes, the file system needs {needs}")]
    TooShort {
        /// The size of the device in bytes.
        has: u64,
        /// The size of the file system in bytes.
        needs: u64,
    },
    /// There is not enough memory for the descriptors of all groups.
    #[error("the file system has more groups than there is memory for")]
    TooManyGroups,
    /// Two owners share one metadata block.
    #[error("the file system is damaged: {block} has two owners")]
    CrossLinked {
        /// The block number.
        block: Block,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The journal failed, or was aborted earlier; contains the first cause.
    #[error(transparent)]
    Journal(#[from] lanefs_journal::Error),
    /// The journal is on another device, which was not given or does not fit.
    #[error("the journal is on another device, with UUID {}: {why}", Dashed(*uuid))]
    JournalDevice {
        /// The UUID of the journal's device.
        uuid: [u8; 16],
        /// The reason.
        why: UnfitJournal,
    },
    /// The process is a child of fork(2). Its parent has mounted the file system and uses it. A
    /// server that goes to the background must do so before it opens the file system.
    #[error("opened by the parent process, before fork(2)")]
    Forked,
    /// The file system is mounted read-only, or became so after an error.
    #[error("read-only file system")]
    ReadOnly,
    /// The file or directory does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// The inode is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The operation is not possible on a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The directory is not empty.
    #[error("directory not empty")]
    NotEmpty,
    /// There is no free block or inode, or the free blocks are reserved.
    #[error("no space left on the file system")]
    NoSpace,
    /// A limit of the user, group or project is reached.
    #[error("disk quota exceeded")]
    OverQuota,
    /// A name is longer than 255 bytes, or a symlink target is a block or longer.
    #[error("name too long")]
    NameTooLong,
    /// The inode has the largest possible number of links.
    #[error("too many links")]
    TooManyLinks,
    /// An argument is invalid.
    #[error("invalid argument: {0}")]
    InvalidArgument(#[from] InvalidArgument),
    /// The size exceeds the largest file that the format allows.
    #[error("file too large")]
    FileTooLarge,
    /// The operation does not exist for this kind of inode, or it needs a feature that the file
    /// system lacks.
    #[error("operation not supported")]
    NotSupported,
    /// The inode that the caller refers to does not exist any more.
    #[error("stale file handle")]
    Stale,
    /// The extended attribute does not exist.
    #[error("no such attribute")]
    NoAttribute,
    /// No user may perform the operation (for example because the file is immutable).
    #[error("operation not permitted")]
    NotPermitted,
    /// The caller lacks the permission.
    #[error("permission denied")]
    PermissionDenied,
    /// A directory would become its own ancestor, or too many symbolic links were followed.
    #[error("too many levels of symbolic links")]
    Loop,
    /// The offset of seek_data or seek_hole is beyond the end of the file.
    #[error("no such offset")]
    NoSuchOffset,
    /// The file was not opened for this operation.
    #[error("file not opened for this operation")]
    BadDescriptor,
    /// The file system cannot become larger while it is mounted.
    #[error("the file system cannot grow: {0}")]
    CannotGrow(#[from] CannotGrow),
    /// The object is in use.
    #[error("device or resource busy")]
    Busy,
    /// Another computer uses the file system (feature `mmp`).
    #[error("in use by {node} (device {device}) at {}: unmount it there first", utc(*time))]
    OtherComputer {
        /// The name of that computer.
        node: String,
        /// The name of the device on that computer.
        device: String,
        /// The time at which that computer last changed the MMP block, in seconds since 1970 by its
        /// clock.
        time: u64,
    },
    /// e2fsck is changing the file system, or was interrupted (feature `mmp`).
    #[error(
        "e2fsck was started on {node} at {} and has not finished: it runs, or was interrupted",
        utc(*time)
    )]
    BeingChecked {
        /// The name of the computer on which e2fsck was started.
        node: String,
        /// The time at which that computer last changed the MMP block, in seconds since 1970 by its
        /// clock.
        time: u64,
    },
    /// A block of a verity file, or of its hash tree, was changed.
    #[error("verity file {ino}: block {block} of {} was changed", Level(*level))]
    NotVerified {
        /// The inode number.
        ino: Ino,
        /// The level of the hash tree, from 1 on; 0 for the data.
        level: usize,
        /// The index of the block within its level, counted in blocks of the hash tree's block
        /// size.
        block: u64,
    },
    /// The file is open for writing, and cannot become a verity file.
    #[error("text file busy: it is open for writing")]
    OpenForWriting,
    /// The file is becoming a verity file, and cannot be opened for writing.
    #[error("text file busy: it is becoming a verity file")]
    BecomesVerity,
    /// The operation needs the key of an encrypted inode.
    #[error("required key not available: {0}")]
    NoKey(#[from] MissingKey),
    /// The directory is encrypted, so it cannot contain a name of this file, which is not encrypted
    /// or is encrypted by another policy.
    #[error("the directory is encrypted, and the file is not encrypted by the same policy")]
    OtherPolicy,
    /// An inode with a name in an encrypted directory is not encrypted by the directory's policy.
    /// Only damage can cause this.
    #[error("it is in an encrypted directory, and is not encrypted by the policy of the directory")]
    ForeignPolicy,
    /// The system returned no random bytes for the context of a new encrypted inode.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// Something that the code rules out has happened: a bug in Lanefs. In a commit this error
    /// aborts the journal, as any other does.
    #[error("a bug in Lanefs ({place}): please report it")]
    Internal {
        /// Where it was noticed.
        place: &'static Location<'static>,
    },
    /// The directory passes its project on to its files, so it cannot contain a name of this inode,
    /// which belongs to another project.
    #[error("the directory passes its project on, and the file belongs to another project")]
    OtherProject,
}

/// Why the key of an encrypted inode is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MissingKey {
    /// The mount was not given the master key.
    #[error("master key {} was not given", Hex(identifier))]
    NotGiven {
        /// The identifier of the key.
        identifier: [u8; 16],
    },
    /// The policy is not supported.
    #[error("the policy {what}, which is not supported")]
    Policy {
        /// The reason.
        what: &'static str,
    },
}

/// Prints a level of a hash tree.
struct Level(usize);

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("its data"),
            level => write!(f, "level {level} of its hash tree"),
        }
    }
}

/// Prints bytes as hexadecimal digits.
struct Hex<'b>(&'b [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The party that caused an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The image violates the format.
    Image {
        /// The damaged inode, or the owner of the damaged block; `None` if no inode owns the block.
        ino: Option<Ino>,
        /// The damaged block of the device, if it is known.
        block: Option<Block>,
    },
    /// The image uses a feature that is not supported.
    Unsupported,
    /// The device, or the journal on it, failed.
    Device,
    /// Lanefs has a bug.
    Lanefs,
    /// The caller requested something that is not possible.
    Caller,
}

/// The value of an option that cannot be `None` here.
pub trait Expected<T> {
    /// Returns the value.
    ///
    /// # Errors
    /// [`Error::Internal`] with the caller's place if there is none.
    fn expected(self) -> Result<T, Error>;
}

impl<T> Expected<T> for Option<T> {
    #[inline]
    #[track_caller]
    fn expected(self) -> Result<T, Error> {
        match self {
            Some(value) => Ok(value),
            None => Err(Error::internal()),
        }
    }
}

impl Error {
    /// Returns the error for what cannot happen, with the caller's place.
    #[cold]
    #[track_caller]
    pub fn internal() -> Error {
        Error::Internal { place: Location::caller() }
    }

    /// Returns the party that caused the error and, for a damaged image, the place of the damage.
    pub fn fault(&self) -> Fault {
        match self {
            Error::Corruption(damage) => Fault::Image { ino: damage.ino(), block: damage.block() },
            Error::OutsideFileSystem { block } | Error::CrossLinked { block } => {
                Fault::Image { ino: None, block: Some(*block) }
            }
            Error::ClaimsMetadata { ino, block } => {
                Fault::Image { ino: Some(*ino), block: Some(*block) }
            }
            Error::NotVerified { ino, .. } => Fault::Image { ino: Some(*ino), block: None },
            Error::TooShort { .. } => Fault::Image { ino: None, block: None },
            Error::Unsupported(_) => Fault::Unsupported,
            Error::Device(_) | Error::Journal(_) => Fault::Device,
            Error::Internal { .. } => Fault::Lanefs,
            _ => Fault::Caller,
        }
    }

    /// Returns the system's error number (Linux values).
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Error::Corruption(_)
            | Error::OutsideFileSystem { .. }
            | Error::ClaimsMetadata { .. }
            | Error::TooShort { .. }
            | Error::CrossLinked { .. } => return 117, // EUCLEAN, like the kernel's ext4
            Error::Unsupported(_) | Error::NotSupported | Error::CannotGrow(_) => Errno::OPNOTSUPP,
            Error::Device(_) | Error::NoRandomness | Error::NotVerified { .. } => Errno::IO,
            Error::Journal(_) | Error::Internal { .. } => Errno::IO,
            Error::Forked => Errno::NXIO,
            Error::ReadOnly => Errno::ROFS,
            Error::NotFound => Errno::NOENT,
            Error::Exists => Errno::EXIST,
            Error::NotDirectory => Errno::NOTDIR,
            Error::IsDirectory => Errno::ISDIR,
            Error::NotEmpty => Errno::NOTEMPTY,
            Error::NoSpace => Errno::NOSPC,
            Error::OverQuota => Errno::DQUOT,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::TooManyLinks => Errno::MLINK,
            Error::InvalidArgument(_) | Error::JournalDevice { .. } => Errno::INVAL,
            Error::FileTooLarge => Errno::FBIG,
            Error::TooManyGroups => Errno::NOMEM,
            Error::Stale => Errno::STALE,
            Error::NoAttribute => Errno::NODATA,
            Error::NotPermitted | Error::ForeignPolicy => Errno::PERM,
            Error::PermissionDenied => Errno::ACCESS,
            Error::Loop => Errno::LOOP,
            Error::NoSuchOffset => Errno::NXIO,
            Error::BadDescriptor => Errno::BADF,
            Error::Busy | Error::OtherComputer { .. } | Error::BeingChecked { .. } => Errno::BUSY,
            Error::OpenForWriting | Error::BecomesVerity => Errno::TXTBSY,
            Error::OtherProject | Error::OtherPolicy => Errno::XDEV,
            Error::NoKey(_) => Errno::NOKEY,
        };
        errno.raw_os_error()
    }
}

/// Writes seconds since 1970 as date and time in UTC.
pub fn utc(secs: u64) -> String {
    // Counts days of the proleptic Gregorian calendar in eras of 400 years, each of which starts in
    // March.
    let (days, rest) = (secs / 86_400 + 719_468, secs % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month < 10 {
        true => (era * 400 + year, month + 3),
        false => (era * 400 + year + 1, month - 9),
    };
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

// The reasons for errors that the caller caused.

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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_gregorian_calendar() {
        for (secs, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400 + 86_399, "2000-02-29 23:59:59 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (1_763_855_532, "2025-11-22 23:52:12 UTC"),
        ] {
            assert_eq!(utc(secs), text);
        }
        utc(u64::MAX);
    }

    #[test]
    fn what_cannot_happen_names_its_place() {
        let error = None::<()>.expected().expect_err("there is no value");
        assert!(error.to_string().contains("error.rs:"), "{error}");
        assert_eq!((error.fault(), error.errno()), (Fault::Lanefs, 5));
    }
}
