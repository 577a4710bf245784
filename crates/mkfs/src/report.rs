//! The errors of creating a file system, and the properties of a new one.

use lanefs_device::DeviceError;
use lanefs_ondisk::{Corruption, UnfitJournal};
use thiserror::Error;

/// The reason why a file system was not created.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values
pub enum MkfsError {
    #[error("{bytes} bytes are too few for a file system of this kind")]
    TooSmall { bytes: u64 },
    #[error("{blocks} blocks are too many for a file system of this kind")]
    TooLarge { blocks: u64 },
    #[error("the device has {device} bytes, not {wanted}")]
    BeyondDevice { device: u64, wanted: u64 },
    #[error("{inodes} inodes are too many")]
    TooManyInodes { inodes: u64 },
    #[error("a journal of {blocks} blocks is too short, or too large for the file system")]
    JournalSize { blocks: u32 },
    #[error("the device needs writes of {device} bytes, and blocks have {block_size}")]
    Alignment { device: u32, block_size: u32 },
    /// An option is out of range.
    #[error("{option} out of range")]
    Option { option: &'static str },
    /// A feature that a new file system cannot have, or that Lanefs does not write.
    #[error("{names}: Lanefs does not make file systems with this feature")]
    Feature { names: String },
    /// Features that do not go together.
    #[error("{rule}")]
    FeatureRule { rule: &'static str },
    /// The requested limit for growth is not larger than the file system itself.
    #[error("growing to {wanted} blocks cannot be prepared: the file system has {blocks}")]
    Growth { wanted: u64, blocks: u64 },
    /// The files need more blocks than the file system has.
    #[error("the files do not fit into {bytes} bytes")]
    Full { bytes: u64 },
    /// The files need more inodes than the file system has.
    #[error("{files} files need more inodes than the {inodes} of the file system")]
    TooFewInodes { files: u64, inodes: u64 },
    /// A file of the tree cannot be stored.
    #[error("file {index} of the tree: {fault}")]
    File { index: usize, fault: FileFault },
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A journal is attached only to a clean file system that has none.
    #[error("the file system is not clean, or has a journal")]
    NotAttachable,
    /// The device cannot become the journal of the file system.
    #[error(transparent)]
    Unfit(#[from] UnfitJournal),
    /// The file system, or the log to attach, is damaged.
    #[error(transparent)]
    Damaged(Corruption),
    /// The chosen layout violates the format, which is a bug in this crate.
    #[error("the layout is wrong: {0}")]
    Layout(#[from] Corruption),
}

/// The reason why ext4 cannot store a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values
pub enum FileFault {
    #[error("the tree is not complete")]
    Tree,
    #[error("{links} hard links; ext4 allows {most}")]
    Links { links: u32, most: u32 },
    #[error("a target of {len} bytes; the file system allows {most}")]
    Target { len: usize, most: usize },
    #[error("the name {name:?} is empty, longer than 255 bytes, or has a slash or NUL")]
    Name { name: String },
    #[error("{entries} names in one directory are too many for this block size")]
    Names { entries: usize },
    #[error("attribute {name}: ext4 does not store attributes of this kind")]
    AttributeName { name: String },
    #[error("attribute {name}: not an access control list")]
    AccessList { name: String },
    #[error("extended attributes of {bytes} bytes; the inode and one block hold about {most}")]
    Attributes { bytes: usize, most: usize },
    #[error("{bytes} bytes are more than a file of this file system holds")]
    Size { bytes: u64 },
    #[error("device {major}:{minor}; ext4 stores 12 and 20 bits")]
    DeviceNumber { major: u32, minor: u32 },
    #[error("a time outside of the years 1901 to 2446 (to 2038 with 128-byte inodes)")]
    Time,
}

/// Describes the new file system.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of block groups.
    pub groups: u32,
    /// Number of inodes.
    pub inodes: u32,
    /// Blocks of the journal; 0 if there is none.
    pub journal_blocks: u32,
    /// Blocks that only root may take.
    pub reserved_blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// The features, by the names that `dumpe2fs` prints.
    pub features: Vec<String>,
    /// Files of the tree with a property that was left out, as [`super::OnLoss::Report`] allows.
    pub losses: Vec<(usize, FileFault)>,
}
