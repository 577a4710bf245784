//! The possible faults of an image, as data.

use crate::field::{Feature, Field};
use crate::harm::Harm;
use lanefs_ondisk::{Block, FileBlock, FileType, Ino};
use lanefs_ondisk::{bitmap, dirent, extent, group_desc, htree, inode, jbd2, orphan, quota};
use lanefs_ondisk::{superblock, xattr};
use thiserror::Error;

/// A fault. The damaged object is recorded separately, as the place of the finding.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the values found and expected
pub enum Fault {
    // Faults that a decoder finds while it decodes a structure.
    #[error("{0}")]
    Superblock(superblock::Cause),
    #[error("{0}")]
    Descriptor(group_desc::Cause),
    #[error("{0}")]
    Bitmap(bitmap::Cause),
    #[error("{0}")]
    Inode(inode::Cause),
    #[error("a deleted inode: {0}")]
    Deleted(inode::Cause),
    #[error("{cause}")]
    Extent { cause: extent::Cause, from: FileBlock },
    #[error("{0}")]
    Dirent(dirent::Cause),
    #[error("{0}")]
    Index(htree::Cause),
    #[error("{0}")]
    Attributes(xattr::Cause),
    #[error("{0}")]
    Journal(jbd2::Cause),
    #[error("{0}")]
    Orphans(orphan::Cause),

    // The device.
    #[error("cannot be read: the device is shorter than the file system, or failed")]
    Unreadable,
    #[error("the file system has {blocks} blocks, the device {device}")]
    Truncated { blocks: u64, device: u64 },

    // The superblock.
    #[error(
        "a mount met an error: its remaining faults are reported too; a repair clears the mark"
    )]
    MarkedErrors,
    #[error("{what} is {found} where {expected} was found")]
    Count { what: &'static str, found: u64, expected: u64 },
    #[error("{field} is {found}, which is not valid")]
    Field { field: Field, found: u64 },
    #[error("differs from the superblock in {what}")]
    Differs { what: &'static str },
    #[error("mmp: e2fsck is checking it, or was interrupted; no mount accepts that")]
    BeingChecked,
    #[error("the root directory is missing")]
    NoRoot,
    #[error("in use, though the file system lacks the feature {feature}")]
    Feature { feature: Feature },
    #[error("has both resize_inode and meta_bg, which exclude each other")]
    ResizeInode,

    // Bitmaps.
    #[error("{len} from {start} on are in use by {by} and marked free")]
    UsedButFree { start: u64, len: u64, by: Unit },
    #[error("{len} from {start} on are marked as in use, and no {by} uses them")]
    FreeButUsed { start: u64, len: u64, by: Unit },
    #[error("the bits after the last {by} are not all set")]
    Padding { by: Unit },

    // Blocks of files.
    #[error("{start} ({len} blocks) is in use more than once")]
    DoublyClaimed { start: Block, len: u64 },
    #[error("the pointer to {block} leads out of the file system or into its first blocks")]
    WildBlock { block: Block },
    #[error("maps {block}, which is too far from the start of the file")]
    TooFar { block: FileBlock },
    #[error("an extent of a directory at {block} is not initialised")]
    UnwrittenDirectory { block: FileBlock },
    #[error("an extent at {block} is not in the cluster of its position in the file")]
    ClusterOffset { block: FileBlock },
    #[error("i_blocks is {found} where {expected} sectors were counted")]
    Sectors { found: u64, expected: u64 },
    #[error("size is {size}, and its last block is {last:?}")]
    Size { size: u64, last: Option<FileBlock> },

    // Fields of inodes.
    #[error("{what} is {found:#x}, expected 0")]
    NotZero { what: &'static str, found: u64 },
    #[error("flags {flags:#x} are not valid here")]
    Flags { flags: u32 },
    #[error("deletion time {dtime} in an inode in use")]
    DeletedInUse { dtime: u32 },
    #[error("a deleted inode without a deletion time")]
    NoDeletionTime,
    #[error("mode is {mode:#o}, expected {expected}")]
    WrongType { mode: u16, expected: &'static str },
    #[error("the target of a symbolic link is not valid")]
    LinkTarget,
    #[error("times before 1970 that are stored as after 2310")]
    TimeRange,

    // Names and links.
    #[error("leads to inode {target}, which {why}")]
    BadTarget { target: u32, why: TargetFault },
    #[error("file type is {found}, expected {expected:?}")]
    EntryType { found: u8, expected: Option<FileType> },
    #[error("the same name is in the block twice")]
    DuplicateName,
    #[error("a second name of directory {target}")]
    SecondName { target: Ino },
    #[error("leads to inode {target}, which is not encrypted by the policy of the directory")]
    ForeignPolicy { target: Ino },
    #[error("\"..\" is {found:?}, expected {expected}")]
    Parent { found: Option<Ino>, expected: Ino },
    #[error("bytes after the name \"{name}\"")]
    DotBytes { name: &'static str },
    #[error("the name is not valid in the file system's encoding")]
    Encoding,
    #[error("the name is not UTF-8, and the file system has strict names")]
    NotUtf8,
    #[error("link count is {found} where {expected} names were found")]
    Links { found: u32, expected: u32 },
    #[error("in use, and no name leads to it")]
    NoName,
    #[error("no path leads to it from the root directory")]
    Unconnected,
    #[error("no directory lost+found: a repair that needs it makes it")]
    NoLostAndFound,

    // Indexes of directories.
    #[error("none or several entries of the index lead to it")]
    NotInIndex,
    #[error("leaf at another level than the index says")]
    IndexDepth,

    // Attributes.
    #[error("the name at {offset} has no prefix")]
    AttributePrefix { offset: usize },
    #[error("reference count is {found} where {expected} inodes refer to it")]
    References { found: u32, expected: u32 },
    #[error("the value is in inode {ino}, which is not one of attribute values")]
    ValueInode { ino: u32 },

    // Quotas.
    #[error("the superblock names it as a quota file, and the feature quota is missing")]
    NamedAsQuota,
    #[error("not a valid quota file: {0}")]
    QuotaFile(quota::Cause),
    #[error("a quota file without written data at {block}")]
    QuotaHole { block: FileBlock },
    #[error("the usage of id {id} is not the sum of its inodes")]
    Quota { id: u32 },

    // Special inodes.
    #[error("{what}")]
    Special { ino: u32, what: &'static str },
    #[error("the log has to be replayed; it was checked as after the replay of {blocks} blocks")]
    Replayed { blocks: u64 },
    #[error("the log was not closed, and needs_recovery is not set")]
    StaleLog,
    #[error("the log cannot be replayed: {why}")]
    NoReplay { why: String },
    #[error("a part of the log is damaged, and is left out of the replay: {why}")]
    LogDamaged { why: String },
    #[error("an orphan that is not valid: inode {ino}")]
    Orphan { ino: u32 },
    #[error("{orphans} orphans are to be deleted by the next mount")]
    OrphansPending { orphans: u64, recovers: bool },
    #[error("orphan_present is set, and the orphan file has no orphans")]
    NoOrphans,
}

/// What one bit of a bitmap stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A block, or a cluster of blocks.
    Block,
    /// An inode.
    Inode,
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unit::Block => "file",
            Unit::Inode => "inode",
        })
    }
}

/// Why a directory entry must not refer to an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TargetFault {
    /// The inode number is too large or reserved.
    #[error("does not exist or is reserved")]
    Number,
    /// The inode is free.
    #[error("is free")]
    Free,
    /// The inode is in the part of a table that was never written.
    #[error("was never initialised")]
    Uninitialised,
    /// No name may refer to the root directory.
    #[error("is the root directory")]
    Root,
}

impl From<xattr::Cause> for Fault {
    fn from(cause: xattr::Cause) -> Fault {
        Fault::Attributes(cause)
    }
}

impl Fault {
    /// Returns the harm that the fault does to the users of the file system.
    pub fn harm(&self) -> Harm {
        use Fault::*;
        match self {
            Superblock(_)
            | Journal(_)
            | Special { .. }
            | StaleLog
            | NoReplay { .. }
            | LogDamaged { .. }
            | BeingChecked => Harm::Unmountable,
            NoRoot | Truncated { .. } | Unreadable => Harm::DataLost { from: None },
            Descriptor(_) => Harm::Unmountable,
            Bitmap(_) => Harm::NoAllocation,
            Inode(_) | WrongType { .. } | Flags { .. } | LinkTarget => Harm::FileLost,
            Extent { from, .. } => Harm::DataLost { from: Some(*from) },
            WildBlock { .. } | TooFar { .. } | UnwrittenDirectory { .. } | ClusterOffset { .. } => {
                Harm::DataLost { from: None }
            }
            Size { last, .. } => Harm::DataLost { from: *last },
            Dirent(_) | BadTarget { .. } | DuplicateName | SecondName { .. } | Encoding => {
                Harm::NamesLost
            }
            ForeignPolicy { .. } => Harm::FileLost,
            NotInIndex | IndexDepth | Index(_) | NotUtf8 => Harm::NamesNotFound,
            NoName | Unconnected => Harm::NoPath,
            Parent { .. } | EntryType { .. } => Harm::WrongAnswers,
            DotBytes { .. }
            | TimeRange
            | Deleted(_)
            | Padding { .. }
            | Field { .. }
            | ResizeInode
            | NoOrphans => Harm::Harmless,
            Attributes(_) | AttributePrefix { .. } | ValueInode { .. } => Harm::AttributesLost,
            References { .. } | UsedButFree { .. } | DoublyClaimed { .. } => Harm::Overwritten,
            FreeButUsed { len, by: Unit::Block, .. } => Harm::SpaceLeaked { clusters: *len },
            FreeButUsed { .. } | NoDeletionTime | DeletedInUse { .. } => Harm::WrongCounts,
            Count { .. } | Sectors { .. } | NamedAsQuota => Harm::WrongCounts,
            QuotaFile(_) | QuotaHole { .. } | Quota { .. } => Harm::WrongCounts,
            Links { found, expected } if found < expected => Harm::Overwritten,
            Links { .. } => Harm::NeverFreed,
            OrphansPending { recovers: true, .. } => Harm::Note,
            Orphans(_) | Orphan { .. } | OrphansPending { .. } => Harm::NeverFreed,
            NotZero { .. } | Feature { .. } => Harm::WrongAnswers,
            MarkedErrors | NoLostAndFound | Differs { .. } | Replayed { .. } => Harm::Note,
        }
    }
}
