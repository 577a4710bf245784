//! The reasons why a change was not made.

use lanefs_device::DeviceError;
use lanefs_mkfs::resize::SizeError;
use lanefs_ondisk::BadSize;
use lanefs_ondisk::inode::TooLarge;
use lanefs_ondisk::{Corruption, Ino};
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// The error of a failed change.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system is damaged or not supported, or its device failed.
    #[error(transparent)]
    Ext4(#[from] lanefs_ext4::Error),
    /// The file system must be checked before it can be changed.
    #[error("{0}: it has to be checked first")]
    NeedsCheck(#[from] Unchecked),
    /// The change needs a journal or a longer journal, or the repair cannot be written through the
    /// journal.
    #[error(transparent)]
    Journal(#[from] JournalNeed),
    /// The change is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The file that is to hold the copy cannot be written.
    #[error("the copy: {0}")]
    Copy(Arc<io::Error>),
}

/// Why a file system must be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unchecked {
    /// The superblock has the error state.
    #[error("the file system is marked as having errors")]
    HasErrors,
    /// There is no log to replay, and the superblock is not marked clean.
    #[error("it has no journal and was not unmounted cleanly")]
    Unclean,
    /// A removal of the journal was interrupted, and another program wrote to the file system
    /// afterwards; or the superblock names a journal that it does not have, and that is in use.
    #[error("a journal was being removed, and a mount came before that ended")]
    HalfJournal,
    /// The mount of a [`Draft`](crate::Draft) was not closed.
    #[error("the changes were not closed")]
    OpenDraft,
}

/// Why a change cannot be written through the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JournalNeed {
    /// The changes have to be written as one transaction of a journal in the image, but the journal
    /// is on another device.
    #[error(
        "changes that become durable together need a journal in the image, and this journal is on \
         another device"
    )]
    InImage,
    /// The changes have to be written as one transaction of a journal, but there is no journal.
    #[error("without a journal, changes cannot become durable together")]
    ForDraft,
    /// The change has to be made through a journal, but there is no journal.
    #[error("without a journal, this change cannot be made")]
    Missing,
    /// The changed blocks that were in use do not fit into the journal.
    #[error(
        "{needed} blocks in use change, and the journal has room for {most}: it has to be longer, \
         or the changes made in several steps"
    )]
    DraftTooLarge {
        /// The number of changed blocks that were in use.
        needed: u64,
        /// The number of blocks that fit.
        most: u64,
    },
    /// The change does not fit into the journal.
    #[error("the change takes {needed} blocks of the journal, and the journal has {most}")]
    TooLarge {
        /// The number of journal blocks that the change needs.
        needed: u32,
        /// The number of journal blocks.
        most: u32,
    },
    /// A repair through the log cannot start from a superblock that a crash left half written.
    #[error("the superblock is torn")]
    TornSuperblock,
    /// A repair through the log must not change the superblock fields by which the log is found.
    #[error("the repair changes what the log needs")]
    RepairsSuperblock,
    /// A repair through the log must not change the log.
    #[error("the repair changes the log")]
    RepairsLog,
}

/// Why a change is refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The layout does not allow the size.
    #[error(transparent)]
    Size(#[from] BadSize),
    /// The device is shorter than the requested size.
    #[error("the device has {device} blocks, and {blocks} were asked for")]
    ShortDevice {
        /// The length of the device in blocks.
        device: u64,
        /// The requested size in blocks.
        blocks: u64,
    },
    /// The files do not fit into the requested size.
    #[error("{blocks} blocks are too few: the smallest size is {least} blocks, {bytes} bytes")]
    TooSmall {
        /// The requested size in blocks.
        blocks: u64,
        /// The smallest possible size in blocks.
        least: u64,
        /// The smallest possible size in bytes.
        bytes: u64,
    },
    /// A file system with this feature cannot be made smaller.
    #[error("a file system with {feature} cannot be made smaller here")]
    CannotShrink {
        /// The feature.
        feature: &'static str,
    },
    /// An inode would have more space than its record can count.
    #[error("{ino}: {cause}")]
    InodeTooLarge {
        /// The inode number.
        ino: Ino,
        /// The field and its limit.
        cause: TooLarge,
    },
    /// The length of the journal is out of range.
    #[error(
        "a journal of {blocks} blocks is impossible: it has {least} blocks or more, and at \
         most half of the file system"
    )]
    JournalLength {
        /// The requested number of blocks.
        blocks: u32,
        /// The smallest number of blocks.
        least: u32,
    },
    /// There are too few free blocks.
    #[error("there is no room for {blocks} blocks")]
    NoRoom {
        /// The number of blocks that the journal needs.
        blocks: u32,
    },
    /// The journal of a file system with `bigalloc` is not changed.
    #[error("the journal of a file system with bigalloc cannot be changed here")]
    BigallocJournal,
    /// The journal is on another device.
    #[error("the journal is on another device: it cannot be changed here")]
    JournalElsewhere,
    /// A value is too long for its field of the superblock.
    #[error("{field} has {len} bytes; {most} fit")]
    TooLong {
        /// The field.
        field: &'static str,
        /// The length of the value in bytes.
        len: usize,
        /// The length of the field in bytes.
        most: usize,
    },
    /// The interval of multi-mount protection is too long.
    #[error("the interval of mmp is at most {most} seconds")]
    MmpInterval {
        /// The longest interval in seconds.
        most: u16,
    },
    /// A feature cannot be set or cleared without a rewrite of the file system.
    #[error(
        "{} cannot be {} here: that needs a rewrite of the file system (tune2fs or resize2fs may \
         do it)",
        features.join(", "), if *set { "set" } else { "cleared" }
    )]
    Features {
        /// The features.
        features: Vec<String>,
        /// Whether the request was to set these features (`true`) or to clear them (`false`).
        set: bool,
    },
    /// A feature or size was given without something that it requires.
    #[error("{wanted} needs {needs}")]
    Needs {
        /// What was given.
        wanted: &'static str,
        /// What is missing.
        needs: &'static str,
    },
    /// Too many blocks would be reserved.
    #[error("at most half of the blocks can be reserved")]
    Reserved,
    /// The feature `metadata_csum_seed` cannot be cleared, because all checksums depend on the seed
    /// that the superblock stores.
    #[error(
        "metadata_csum_seed cannot be cleared: the UUID has changed since, and all checksums would \
         have to change"
    )]
    SeedInUse,
    /// The UUID cannot be changed, because all checksums depend on it.
    #[error(
        "all checksums depend on the UUID: the feature metadata_csum_seed keeps them (Linux 4.4 and \
         later mount it); tune2fs rewrites them"
    )]
    UuidInChecksums,
    /// The UUID cannot be changed, because the hashes of attribute values depend on it.
    #[error("the hashes of attribute values in inodes (ea_inode) depend on the UUID")]
    UuidInHashes,
    /// The UUID cannot be changed, because encrypted inodes may depend on it.
    #[error("the feature stable_inodes keeps the UUID as it is")]
    StableUuid,
    /// The UUID cannot be changed, because the journal device refers to the file system by it.
    #[error("the device of the journal names the file system by its UUID")]
    UuidInJournal,
    /// The undo file is damaged.
    #[error("not a whole undo file of lanefs repair")]
    BrokenUndo,
    /// The undo file was made for an image of another length.
    #[error("the image has {is} bytes, and the undo file is of one with {was}")]
    OtherImage {
        /// The length of the device in bytes.
        is: u64,
        /// The length in bytes that the undo file states.
        was: u64,
    },
}

impl From<BadSize> for Error {
    fn from(reason: BadSize) -> Error {
        Refusal::Size(reason).into()
    }
}

impl From<SizeError> for Error {
    fn from(error: SizeError) -> Error {
        match error {
            SizeError::Refused(reason) => reason.into(),
            SizeError::Corruption(cause) => cause.into(),
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        Error::Ext4(error.into())
    }
}

impl From<Corruption> for Error {
    fn from(error: Corruption) -> Error {
        Error::Ext4(error.into())
    }
}

impl From<lanefs_journal::Error> for Error {
    fn from(error: lanefs_journal::Error) -> Error {
        Error::Ext4(error.into())
    }
}
