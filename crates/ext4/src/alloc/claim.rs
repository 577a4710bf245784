//! What is promised to somebody and to nobody else, in memory only.

use super::groups::Shared;
use lanefs_lanes::Padded;
use lanefs_ondisk::{Block, Group, Ino};
use std::sync::Arc;

/// Keeps the groups in memory for the claims that one lane made, so that claims do not all count
/// their references on one line.
pub(crate) type Anchor = Arc<Padded<Arc<Shared>>>;

/// A run of blocks that is taken: nobody else gets it, and nothing on disk says so yet. Dropping it
/// gives it back.
pub(crate) struct Claim {
    anchor: Anchor,
    start: Block,
    len: u32,
}

impl Claim {
    pub(super) fn new(anchor: Anchor, start: Block, len: u32) -> Claim {
        Claim { anchor, start, len }
    }

    /// The first block.
    pub(crate) fn start(&self) -> Block {
        self.start
    }

    /// How many blocks; they lie in one group.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Makes a claim of the first `blocks` of it, and keeps the rest.
    ///
    /// # Panics
    /// If it has not as many.
    pub(crate) fn split_front(&mut self, blocks: u32) -> Claim {
        assert!(blocks <= self.len, "{blocks} of {} claimed blocks", self.len);
        let front = Claim { anchor: self.anchor.clone(), start: self.start, len: blocks };
        self.start = Block(self.start.0 + u64::from(blocks));
        self.len -= blocks;
        front
    }

    /// The run, which is no longer given back.
    pub(super) fn into_run(mut self) -> (Block, u32) {
        (self.start, std::mem::take(&mut self.len))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.len > 0 {
            self.anchor.give_back(self.start, self.len);
        }
    }
}

/// An inode number that is taken. Dropping it gives it back.
pub(crate) struct InodeClaim {
    anchor: Option<Anchor>,
    ino: Ino,
    group: Group,
    index: u32,
}

impl InodeClaim {
    pub(super) fn new(anchor: Anchor, ino: Ino, group: Group, index: u32) -> InodeClaim {
        InodeClaim { anchor: Some(anchor), ino, group, index }
    }

    /// The number.
    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    /// The group it lies in.
    pub(crate) fn group(&self) -> Group {
        self.group
    }

    /// Group and bit, which are no longer given back.
    pub(super) fn into_place(mut self) -> (Group, u32) {
        self.anchor = None;
        (self.group, self.index)
    }
}

impl Drop for InodeClaim {
    fn drop(&mut self) {
        if let Some(anchor) = self.anchor.take() {
            anchor.give_back_inode(self.group, self.index);
        }
    }
}
