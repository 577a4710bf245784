//! The groups' states and hints. Claims keep them alive.

use super::group::GroupState;
use super::presence::Presence;
use super::read::Format;
use super::runs;
use super::space::Space;
use super::summary::Summaries;
use super::tally::Tally;
use lanefs_lanes::{Growing, Mutex, MutexGuard, Padded};
use lanefs_ondisk::{Block, Group};
use std::ops::Range;

/// One group: whether its bitmaps are in memory, and its guarded state.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) presence: Presence,
    /// [rank Guard]
    pub(super) state: Mutex<GroupState>,
}

/// The part of [`super::Groups`] that every claim keeps in memory.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) format: Format,
    pub(super) cells: Growing<Padded<Cell>>,
    pub(super) summaries: Summaries,
    pub(super) space: Space,
    pub(super) tally: Tally,
    /// Data clusters in a whole row of the underlying RAID; 0 without a RAID.
    pub(super) row: u32,
}

impl Shared {
    pub(super) fn state(&self, group: Group) -> MutexGuard<'_, GroupState> {
        self.cells[group.0 as usize].state.lock()
    }

    /// Returns the block of `bit`, which must be a bit of the group's bitmap.
    pub(super) fn block(&self, group: Group, bit: u32) -> Block {
        self.format.geometry().block_at(group, bit).unwrap_or_default()
    }

    /// Splits a run of blocks by group. Yields each group with the bits of the run's clusters in
    /// it.
    pub(super) fn parts(
        &self,
        start: Block,
        len: u32,
    ) -> impl Iterator<Item = (Group, Range<u32>)> {
        let end = start.0 + u64::from(len);
        let mut at = start;
        std::iter::from_fn(move || {
            if at.0 >= end {
                return None;
            }
            let geometry = self.format.geometry();
            let (group, bit) = geometry.group_of(at)?;
            let last = geometry.group_last_block(group)?;
            let clusters = geometry.clusters();
            let blocks = ((last.0 + 1).min(end) - at.0) as u32;
            let len = clusters.holding(clusters.offset(at.0) + blocks);
            at = Block(at.0 + u64::from(blocks));
            Some((group, bit..bit + len))
        })
    }

    /// Makes blocks claimable again.
    pub(super) fn give_back(&self, start: Block, len: u32) {
        for (group, range) in self.parts(start, len) {
            let mut state = self.state(group);
            state.ready().blocks.open(range.clone());
            self.opened(group, &mut state, &range);
        }
        self.space.put_back(len >> self.format.geometry().cluster_bits());
    }

    /// Updates the hints after the bits `range` became claimable. The caller holds the guard.
    pub(super) fn opened(&self, group: Group, state: &mut GroupState, range: &Range<u32>) {
        let blocks = &state.ready().blocks;
        let run = runs::around(&blocks.taken, range.start);
        self.summaries.set_open_blocks(group.0, blocks.open);
        self.summaries.raise(group.0, run.end - run.start);
    }

    /// Sets the exact hints of a group whose bitmaps were read. The caller holds the guard.
    pub(super) fn set_hints(&self, group: Group, state: &mut GroupState) {
        let ready = state.ready();
        let longest = ready.blocks.taken.longest_clear_run(0..ready.blocks.taken.bits());
        self.summaries.set_open_blocks(group.0, ready.blocks.open);
        self.summaries.set_open_inodes(group.0, ready.inodes.open);
        self.summaries.set_longest(group.0, longest.map_or(0, |run| run.end - run.start));
    }

    /// Makes an inode claimable again.
    pub(super) fn give_back_inode(&self, group: Group, index: u32) {
        let mut state = self.state(group);
        let ready = state.ready();
        ready.open_inode(index);
        let open = ready.inodes.open;
        self.summaries.set_open_inodes(group.0, open);
    }

    /// Returns how many bytes the bitmaps of one group take in memory: two block bitmaps, two inode
    /// bitmaps, a bitmap of the blocks that the running transaction allocated, and the overhead.
    pub(super) fn bitmap_bytes(&self) -> u64 {
        let geometry = self.format.geometry();
        let bits = 3 * u64::from(geometry.clusters_per_group())
            + 2 * u64::from(geometry.inodes_per_group());
        bits / 8 + 640
    }
}
