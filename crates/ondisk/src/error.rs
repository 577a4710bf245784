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
    Superblock { cause: cause::superblock::Cause },
    #[error("descriptor of {group}: {cause}")]
    GroupDescriptor { group: Group, cause: cause::group_desc::Cause },
    #[error("bitmap of {group}: {cause}")]
    Bitmap { group: Group, cause: cause::bitmap::Cause },
    #[error("{ino}: {cause}")]
    Inode { ino: Ino, cause: cause::inode::Cause },
    /// `block` is `None` for the root node, which is in the inode.
    #[error("{ino}, extent node {}: {cause}", block.map_or("in the inode".into(), |b| b.to_string()))]
    ExtentNode { ino: Ino, block: Option<Block>, cause: cause::extent::Cause },
    /// `block` is `None` for the pointers in the inode.
    #[error("{ino}, block map {}: {cause}", block.map_or("in the inode".into(), |b| format!("in {b}")))]
    BlockMap { ino: Ino, block: Option<Block>, cause: cause::block_map::Cause },
    #[error("directory {ino}, {block}: {cause}")]
    Directory { ino: Ino, block: FileBlock, cause: cause::dirent::Cause },
    #[error("directory {ino}, index {block}: {cause}")]
    DirectoryIndex { ino: Ino, block: FileBlock, cause: cause::htree::Cause },
    /// `block` is `None` for attributes in the inode.
    #[error("{ino}, extended attributes {}: {cause}", block.map_or("in the inode".into(), |b| format!("in {b}")))]
    Xattr { ino: Ino, block: Option<Block>, cause: cause::xattr::Cause },
    #[error("{ino}, access control list: {cause}")]
    Acl { ino: Ino, cause: cause::acl::Cause },
    /// `block` counts from the start of the log, in log blocks.
    #[error("journal, log block {block}: {cause}")]
    Journal { block: u32, cause: cause::jbd2::Cause },
    /// `ino` is the inode that the fast commit changes.
    #[error("fast commit of {ino}: {cause}")]
    FastCommit { ino: Ino, cause: cause::fast_commit::Cause },
    #[error("orphan file {ino}, {block}: {cause}")]
    OrphanFile { ino: Ino, block: FileBlock, cause: cause::orphan::Cause },
    #[error("multiple mount protection, {block}: {cause}")]
    Mmp { block: Block, cause: cause::mmp::Cause },
    #[error("quota file {ino}: {cause}")]
    Quota { ino: Ino, cause: cause::quota::Cause },
    #[error("verity file {ino}: {cause}")]
    Verity { ino: Ino, cause: cause::verity::Cause },
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
