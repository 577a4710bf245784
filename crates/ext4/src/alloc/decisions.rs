//! The allocators' decisions that a policy can switch to the behaviour of older kernels.

use super::choose::{Attempt, Wait};
use super::summary::Summaries;
use super::visit::Visit;
use crate::error::Error;
use lanefs_ondisk::Ino;
use std::fmt::Debug;

/// The decisions of the allocators that a policy can change. The default methods implement the
/// present policies, and [`older`](super::older) implements the older ones.
pub(super) trait AllocPolicy: Debug + Send + Sync {
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
    fn stream_goal(&self, _ino: Ino) -> Option<u32> {
        None
    }

    /// Notes that blocks for the large file `ino` were found in `group`.
    fn note_stream(&self, _ino: Ino, _group: u32) {}

    /// Returns whether the policy spreads new directories over the groups. If it does, it also
    /// separates callers that use the same group at the same time.
    fn spreads(&self) -> bool {
        true
    }

    /// Claims an inode in a group; returns the inode's index.
    fn claim_inode(&self, group: &Visit<'_>) -> Result<Attempt<u32>, Error> {
        group.enter(|ready| {
            let index = ready.find_inode(0)?;
            group.take_inode(ready, index).then_some(index)
        })
    }
}

/// The present policies.
#[derive(Debug)]
pub(super) struct Present;

impl AllocPolicy for Present {}
