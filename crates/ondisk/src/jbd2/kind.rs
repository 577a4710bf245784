//! The kinds of log blocks.

/// The kind of a block of the log itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Lists the blocks whose copies follow it.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// A superblock of the old form, which has no features.
    SuperblockV1,
    /// A superblock of the form that has features.
    SuperblockV2,
    /// Lists blocks whose copies in this or an earlier transaction must not be replayed.
    Revoke,
}

impl BlockKind {
    pub(super) fn from_number(number: u32) -> Option<BlockKind> {
        Some(match number {
            1 => BlockKind::Descriptor,
            2 => BlockKind::Commit,
            3 => BlockKind::SuperblockV1,
            4 => BlockKind::SuperblockV2,
            5 => BlockKind::Revoke,
            _ => return None,
        })
    }

    pub(super) fn number(self) -> u32 {
        match self {
            BlockKind::Descriptor => 1,
            BlockKind::Commit => 2,
            BlockKind::SuperblockV1 => 3,
            BlockKind::SuperblockV2 => 4,
            BlockKind::Revoke => 5,
        }
    }
}
