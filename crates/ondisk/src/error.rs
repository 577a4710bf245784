//! The possible faults of an image, with their location.
//!
//! The causes are in `cause`; [`Corruption`] adds the object in which the cause was found.

use crate::cause;
use crate::types::{Block, FileBlock, Group, Ino};
use thiserror::Error;

/// The image violates the format. Contains the object and, if known, the block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the place, under the format's names
pub enum Corruption {
    #[error("superblock: {cause}")]
    Superblock { cause: cause::SuperblockCause },
    #[error("descriptor of {group}: {cause}")]
    GroupDescriptor { group: Group, cause: cause::GroupDescCause },
    #[error("bitmap of {group}: {cause}")]
    Bitmap { group: Group, cause: cause::BitmapCause },
    #[error("{ino}: {cause}")]
    Inode { ino: Ino, cause: cause::InodeCause },
    /// `block` is `None` for the root node, which is in the inode.
    #[error("{ino}, extent node {}: {cause}", block.map_or("in the inode".into(), |b| b.to_string()))]
    ExtentNode { ino: Ino, block: Option<Block>, cause: cause::ExtentCause },
    /// `block` is `None` for the pointers in the inode.
    #[error("{ino}, block map {}: {cause}", block.map_or("in the inode".into(), |b| format!("in {b}")))]
    BlockMap { ino: Ino, block: Option<Block>, cause: cause::BlockMapCause },
    #[error("directory {ino}, {block}: {cause}")]
    Directory { ino: Ino, block: FileBlock, cause: cause::DirentCause },
    #[error("directory {ino}, index {block}: {cause}")]
    DirectoryIndex { ino: Ino, block: FileBlock, cause: cause::HtreeCause },
    /// `block` is `None` for attributes in the inode.
    #[error("{ino}, extended attributes {}: {cause}", block.map_or("in the inode".into(), |b| format!("in {b}")))]
    Xattr { ino: Ino, block: Option<Block>, cause: cause::XattrCause },
    #[error("{ino}, access control list: {cause}")]
    Acl { ino: Ino, cause: cause::AclCause },
    /// `block` counts from the start of the log, in log blocks.
    #[error("journal, log block {block}: {cause}")]
    Journal { block: u32, cause: cause::Jbd2Cause },
    /// `ino` is the inode that the fast commit changes.
    #[error("fast commit of {ino}: {cause}")]
    FastCommit { ino: Ino, cause: cause::FastCommitCause },
    #[error("orphan file {ino}, {block}: {cause}")]
    OrphanFile { ino: Ino, block: FileBlock, cause: cause::OrphanCause },
    #[error("multiple mount protection, {block}: {cause}")]
    Mmp { block: Block, cause: cause::MmpCause },
    #[error("quota file {ino}: {cause}")]
    Quota { ino: Ino, cause: cause::QuotaCause },
    #[error("verity file {ino}: {cause}")]
    Verity { ino: Ino, cause: cause::VerityCause },
}

impl Corruption {
    /// Returns the damaged inode, or the owner of the damaged block, if there is one.
    pub fn ino(&self) -> Option<Ino> {
        match *self {
            Corruption::Inode { ino, .. }
            | Corruption::ExtentNode { ino, .. }
            | Corruption::BlockMap { ino, .. }
            | Corruption::Directory { ino, .. }
            | Corruption::DirectoryIndex { ino, .. }
            | Corruption::Xattr { ino, .. }
            | Corruption::Acl { ino, .. }
            | Corruption::FastCommit { ino, .. }
            | Corruption::OrphanFile { ino, .. }
            | Corruption::Quota { ino, .. }
            | Corruption::Verity { ino, .. } => Some(ino),
            Corruption::Superblock { .. }
            | Corruption::GroupDescriptor { .. }
            | Corruption::Bitmap { .. }
            | Corruption::Journal { .. }
            | Corruption::Mmp { .. } => None,
        }
    }

    /// Returns the damaged block of the device, if it is known.
    pub fn block(&self) -> Option<Block> {
        match *self {
            Corruption::ExtentNode { block, .. }
            | Corruption::BlockMap { block, .. }
            | Corruption::Xattr { block, .. } => block,
            Corruption::Mmp { block, .. } => Some(block),
            _ => None,
        }
    }
}

/// The image is valid but uses an unsupported feature. `what` is either the feature's name as
/// `dumpe2fs` prints it, or a short description of the feature.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not supported: {what}")]
pub struct Unsupported {
    /// The name or description of the feature.
    pub what: String,
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
         only with meta_bg (resize --meta-bg) can they lie in the new groups"
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
    #[error("the resize inode is damaged")]
    ResizeInode,
}

/// Why the device of a journal cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found
pub enum UnfitJournal {
    #[error("it is not given")]
    Missing,
    #[error("the given device is no journal: {damage}")]
    NotAJournal { damage: Corruption },
    #[error("the given device has UUID {}", Dashed(*found))]
    OtherUuid { found: [u8; 16] },
    #[error("its list of users does not have the UUID of this file system")]
    NotAUser,
    #[error("another file system uses it, and a journal with several users is not supported")]
    Shared,
    #[error("it has blocks of {found} bytes, and the file system has blocks of {needs}")]
    BlockSize { found: usize, needs: usize },
    #[error("it has {has} bytes and needs {needs}")]
    TooShort { has: u64, needs: u64 },
}

/// Prints a UUID as blkid does.
pub struct Dashed(pub [u8; 16]);

impl std::fmt::Display for Dashed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}
