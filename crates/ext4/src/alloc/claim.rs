//! Claims: blocks and inode numbers that are promised to one caller, only in memory.

use super::shared::Shared;
use lanefs_lanes::LaneArc;
use lanefs_ondisk::{Block, Group, Ino};

/// A run of claimed blocks, in whole clusters. No other caller gets the run, and it is not yet
/// allocated on disk. Dropping the claim gives the blocks back.
pub(crate) struct Claim {
    groups: LaneArc<Shared>,
    start: Block,
    len: u32,
}

impl Claim {
    pub(super) fn new(groups: LaneArc<Shared>, start: Block, len: u32) -> Claim {
        Claim { groups, start, len }
    }

    /// Returns the first block.
    pub(crate) fn start(&self) -> Block {
        self.start
    }

    /// Returns the number of blocks, which are all in one group.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the number of clusters.
    pub(crate) fn clusters(&self) -> u32 {
        self.len >> self.cluster_bits()
    }

    /// Returns the first block of each cluster. Without `bigalloc` these are all blocks.
    pub(crate) fn first_blocks(&self) -> impl Iterator<Item = Block> + use<> {
        let (start, bits) = (self.start.0, self.cluster_bits());
        (0..u64::from(self.clusters())).map(move |n| Block(start + (n << bits)))
    }

    fn cluster_bits(&self) -> u32 {
        self.groups.format.geometry().cluster_bits()
    }

    /// Splits off the first `blocks` blocks as a separate claim, and keeps the rest. The first
    /// `blocks` blocks must fill whole clusters.
    ///
    /// # Panics
    /// If the claim has fewer than `blocks` blocks.
    pub(crate) fn split_front(&mut self, blocks: u32) -> Claim {
        assert!(blocks <= self.len, "{blocks} of {} claimed blocks", self.len);
        debug_assert_eq!(self.groups.format.geometry().clusters().offset(blocks.into()), 0);
        let front = Claim { groups: self.groups.clone(), start: self.start, len: blocks };
        self.start = Block(self.start.0 + u64::from(blocks));
        self.len -= blocks;
        front
    }

    /// Uses the claim up without giving its run back, and returns the run.
    pub(super) fn into_run(mut self) -> (Block, u32) {
        (self.start, std::mem::take(&mut self.len))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.len > 0 {
            self.groups.give_back(self.start, self.len);
        }
    }
}

/// A claimed inode number. Dropping the claim gives the number back.
pub(crate) struct InodeClaim<'a> {
    /// `None` after the claim was used up.
    groups: Option<&'a Shared>,
    ino: Ino,
    group: Group,
    index: u32,
}

impl<'a> InodeClaim<'a> {
    pub(super) fn new(groups: &'a Shared, ino: Ino, group: Group, index: u32) -> InodeClaim<'a> {
        InodeClaim { groups: Some(groups), ino, group, index }
    }

    /// Returns the inode number.
    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    /// Returns the group of the inode.
    #[cfg(test)]
    pub(crate) fn group(&self) -> Group {
        self.group
    }

    /// Uses the claim up without giving the number back, because an inode in use has this number.
    /// (The bitmap was wrong: it marked the number as free.)
    pub(crate) fn leave_taken(self) {
        self.into_place();
    }

    /// Uses the claim up without giving the number back, and returns the inode's group and bit.
    pub(super) fn into_place(mut self) -> (Group, u32) {
        self.groups = None;
        (self.group, self.index)
    }
}

impl Drop for InodeClaim<'_> {
    fn drop(&mut self) {
        if let Some(groups) = self.groups.take() {
            groups.give_back_inode(self.group, self.index);
        }
    }
}
