//! The place of a finding.

use lanefs_ondisk::{Block, FileBlock, Group, Ino};
use std::fmt;

/// The object in which a fault was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the fields are numbers of the objects that the variants name
pub enum Place {
    Superblock,
    /// A copy of the superblock at the start of a group.
    Backup {
        group: Group,
    },
    Descriptor {
        group: Group,
    },
    BlockBitmap {
        group: Group,
    },
    InodeBitmap {
        group: Group,
    },
    Inode {
        ino: Ino,
    },
    /// A node of an extent tree; `None` stands for the root, which is in the inode.
    Node {
        ino: Ino,
        block: Option<Block>,
    },
    /// A block of pointers, in a file with a block map; `None` stands for the pointers in the
    /// inode.
    Pointers {
        ino: Ino,
        block: Option<Block>,
    },
    /// A block of a directory.
    Directory {
        ino: Ino,
        block: FileBlock,
    },
    /// The entry at byte `offset` in a block of a directory.
    Entry {
        ino: Ino,
        block: FileBlock,
        offset: usize,
    },
    /// A block of a directory's index.
    Index {
        ino: Ino,
        block: FileBlock,
    },
    /// Extended attributes; `None` stands for the area in the inode.
    Attributes {
        ino: Ino,
        block: Option<Block>,
    },
    Journal,
    OrphanFile {
        ino: Ino,
        block: FileBlock,
    },
    OrphanList,
    /// A run of blocks of the device.
    Blocks {
        start: Block,
        len: u64,
    },
}

impl Place {
    /// Returns the inode of the object, or of the object's owner.
    pub fn ino(&self) -> Option<Ino> {
        match *self {
            Place::Inode { ino }
            | Place::Node { ino, .. }
            | Place::Pointers { ino, .. }
            | Place::Directory { ino, .. }
            | Place::Entry { ino, .. }
            | Place::Index { ino, .. }
            | Place::Attributes { ino, .. }
            | Place::OrphanFile { ino, .. } => Some(ino),
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = |f: &mut fmt::Formatter<'_>, block: Option<Block>| match block {
            Some(block) => write!(f, "{block}"),
            None => write!(f, "in the inode"),
        };
        match *self {
            Place::Superblock => write!(f, "superblock"),
            Place::Backup { group } => write!(f, "copy of the superblock in {group}"),
            Place::Descriptor { group } => write!(f, "descriptor of {group}"),
            Place::BlockBitmap { group } => write!(f, "block bitmap of {group}"),
            Place::InodeBitmap { group } => write!(f, "inode bitmap of {group}"),
            Place::Inode { ino } => write!(f, "{ino}"),
            Place::Node { ino, block } => {
                write!(f, "{ino}, extent node ")?;
                within(f, block)
            }
            Place::Pointers { ino, block } => {
                write!(f, "{ino}, block pointers ")?;
                within(f, block)
            }
            Place::Directory { ino, block } => write!(f, "directory {ino}, {block}"),
            Place::Entry { ino, block, offset } => {
                write!(f, "directory {ino}, {block}, entry at byte {offset}")
            }
            Place::Index { ino, block } => write!(f, "directory {ino}, index {block}"),
            Place::Attributes { ino, block } => {
                write!(f, "{ino}, extended attributes ")?;
                within(f, block)
            }
            Place::Journal => write!(f, "journal"),
            Place::OrphanFile { ino, block } => write!(f, "orphan file {ino}, {block}"),
            Place::OrphanList => write!(f, "list of orphans"),
            Place::Blocks { start, len: 1 } => write!(f, "{start}"),
            Place::Blocks { start, len } => {
                write!(f, "blocks {} to {}", start.0, start.0.saturating_add(len) - 1)
            }
        }
    }
}
