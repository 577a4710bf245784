//! The decisions of the allocators of older kernels.

use super::policies::{BusyGroup, GroupSearch, InodeClaiming, Placement, Policies, StreamGoal};
use lanefs_ext4::Error;
use lanefs_ext4::allocation::{Allocation, Attempt, Scaling, Summaries, Visit, Wait};
use lanefs_lanes::sync::OnceLock;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Mutex, Padded, Rank};
use lanefs_ondisk::Ino;
use std::sync::Arc;

/// Free inodes that another thread took between the search and the claim.
static LOST_BITS: AtomicU64 = AtomicU64::new(0);

/// Returns how many free inodes this process has found and lost: another thread took them before
/// the claim. Only with [`InodeClaiming::TwoStep`].
pub fn lost_bits() -> u64 {
    LOST_BITS.load(Ordering::Relaxed)
}

impl Policies {
    /// Returns the allocators' decisions under these policies.
    pub fn allocation(&self) -> Arc<dyn Allocation> {
        let present = Policies {
            overwrite: self.overwrite,
            name_cache: self.name_cache,
            ..Policies::default()
        };
        if *self == present { Arc::new(Scaling) } else { Arc::new(Older::new(self)) }
    }
}

/// The decisions under some or all of the older policies.
#[derive(Debug)]
pub(super) struct Older {
    policies: Policies,
    /// The groups in which the last large files found blocks, created when the number of groups is
    /// known. [rank Guard]
    streams: OnceLock<Box<[Padded<Mutex<u32>>]>>,
}

/// Creates the goals that `policy` requires. Each goal has its own cache lines.
fn streams(policy: StreamGoal, groups: u32) -> Box<[Padded<Mutex<u32>>]> {
    let count = match policy {
        StreamGoal::Inode => 0,
        StreamGoal::Global => 1,
        StreamGoal::Hashed => {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            processors.min(groups as usize / 4).max(1)
        }
    };
    (0..count).map(|_| Padded(Mutex::new(Rank::Guard, 0))).collect()
}

impl Older {
    pub(super) fn new(policies: &Policies) -> Older {
        Older { policies: *policies, streams: OnceLock::new() }
    }
}

/// Returns the goal of `ino`, if there are goals.
fn stream_of(streams: &[Padded<Mutex<u32>>], ino: Ino) -> Option<&Mutex<u32>> {
    streams.get(ino.0 as usize % streams.len().max(1)).map(|padded| &padded.0)
}

impl Allocation for Older {
    fn busy_group(&self) -> Wait {
        match self.policies.busy_group {
            BusyGroup::Skip => Scaling.busy_group(),
            BusyGroup::Wait => Wait::Wait,
        }
    }

    fn spreads(&self) -> bool {
        self.policies.placement == Placement::Lanes
    }

    fn next_with_order(&self, groups: &Summaries, order: u32, from: u32) -> Option<u32> {
        match self.policies.group_search {
            GroupSearch::Index => Scaling.next_with_order(groups, order, from),
            // The bounds are read without the groups' guards, so like the index they may be
            // outdated.
            GroupSearch::Scan => {
                (from..groups.groups()).find(|group| groups.bound(*group) >> order > 0)
            }
        }
    }

    fn next_with_inodes(&self, groups: &Summaries, from: u32) -> Option<u32> {
        match self.policies.group_search {
            GroupSearch::Index => Scaling.next_with_inodes(groups, from),
            GroupSearch::Scan => (from..groups.groups()).find(|group| groups.has_inodes(*group)),
        }
    }

    fn stream_goal(&self, groups: &Summaries, ino: Ino) -> Option<u32> {
        let create = || streams(self.policies.stream_goal, groups.groups());
        stream_of(self.streams.get_or_init(create), ino).map(|last| *last.lock())
    }

    fn note_stream(&self, ino: Ino, group: u32) {
        if let Some(last) = self.streams.get().and_then(|streams| stream_of(streams, ino)) {
            *last.lock() = group;
        }
    }

    fn claim_inode(&self, group: &Visit<'_>) -> Result<Attempt<u32>, Error> {
        match self.policies.inode_claim {
            InodeClaiming::OneStep => Scaling.claim_inode(group),
            InodeClaiming::TwoStep => claim_inode_in_two_steps(group),
        }
    }
}

/// Finds a free inode under the group's guard, and releases the guard. Then takes the guard again,
/// and takes the inode if it is still free; otherwise continues the search after that inode.
fn claim_inode_in_two_steps(group: &Visit<'_>) -> Result<Attempt<u32>, Error> {
    let mut from = 0;
    loop {
        let found = match group.find_inode(from)? {
            Attempt::Taken(found) => found,
            other => return Ok(other),
        };
        match group.take_inode(found)? {
            Attempt::Lacking => {
                LOST_BITS.fetch_add(1, Ordering::Relaxed);
                from = found + 1;
            }
            other => return Ok(other),
        }
    }
}
