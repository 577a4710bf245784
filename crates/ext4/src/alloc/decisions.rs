//! The allocators' decisions that determine how long threads wait for each other.

use crate::alloc::choose::{Attempt, Wait};
use crate::alloc::summary::Summaries;
use crate::alloc::visit::Visit;
use lanefs_ondisk::Ino;
use lanefs_plan::Error;
use std::fmt::Debug;

/// The allocators' decisions that determine how long threads wait for each other. The default
/// methods are those of [`Scaling`]. Another implementation changes where data is placed and how
/// long threads wait, but not what is correct: the benchmark implements the decisions of older
/// kernels (`docs/seeds.md`).
pub trait Allocation: Debug + Send + Sync {
    /// Returns what a search does at a group whose guard is held. This applies to all passes except
    /// the last.
    fn busy_group(&self) -> Wait {
        Wait::Skip
    }

    /// Returns the next group at `from` or later that may have a run of `order` or longer.
    fn next_with_order(&self, groups: &Summaries, order: u32, from: u32) -> Option<u32> {
        groups.next_with_order(order, from)
    }

    /// Returns the next group at `from` or later that may have free inodes.
    fn next_with_inodes(&self, groups: &Summaries, from: u32) -> Option<u32> {
        groups.next_with_inodes(from)
    }

    /// Returns the group to try if the goal of the large file `ino` has no room; `None` means the
    /// group after the goal's group.
    fn stream_goal(&self, _groups: &Summaries, _ino: Ino) -> Option<u32> {
        None
    }

    /// Notes that blocks for the large file `ino` were found in `group`.
    fn note_stream(&self, _ino: Ino, _group: u32) {}

    /// Returns whether new directories are spread over the groups. If they are, callers that use
    /// the same group at the same time are separated too.
    fn spreads(&self) -> bool {
        true
    }

    /// Claims an inode in a group; returns the inode's index.
    ///
    /// # Errors
    /// Damage to the group's bitmaps, or an I/O error when they are read.
    fn claim_inode(&self, group: &Visit<'_>) -> Result<Attempt<u32>, Error> {
        group.claim_inode()
    }
}

/// The decisions that scale: searches skip busy groups, and callers are kept apart.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scaling;

impl Allocation for Scaling {}
