//! The ways in which older kernels allocate, for comparison (`docs/seeds.md`).

use super::choose::{Attempt, Wait};
use super::decisions::{AllocPolicy, Present};
use super::group::Ready;
use super::summary::Summaries;
use super::tally::Count;
use super::visit::Visit;
use crate::error::Error;
use crate::policy::{BusyGroup, GroupSearch, InodeClaiming, Placement, Policies, StreamGoal};
use lanefs_lanes::{Mutex, Padded, Rank};
use lanefs_ondisk::Ino;

/// Returns the implementation of `policies` for a file system with `groups` groups.
pub(super) fn implementation(policies: &Policies, groups: u32) -> Box<dyn AllocPolicy> {
    let Policies { inode_claim, placement, busy_group, stream_goal, group_search, .. } = *policies;
    let present = Policies {
        overwrite: policies.overwrite,
        name_cache: policies.name_cache,
        ..Policies::default()
    };
    if *policies == present {
        return Box::new(Present);
    }
    let streams = streams(stream_goal, groups);
    Box::new(Older { inode_claim, placement, busy_group, group_search, streams })
}

/// An allocator with some or all of the older policies.
#[derive(Debug)]
struct Older {
    inode_claim: InodeClaiming,
    placement: Placement,
    busy_group: BusyGroup,
    group_search: GroupSearch,
    /// The groups in which the last large files found blocks. [rank Guard]
    streams: Box<[Padded<Mutex<u32>>]>,
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
    fn stream(&self, ino: Ino) -> Option<&Mutex<u32>> {
        let count = self.streams.len().max(1);
        self.streams.get(ino.0 as usize % count).map(|padded| &padded.0)
    }
}

impl AllocPolicy for Older {
    fn busy_group(&self) -> Wait {
        match self.busy_group {
            BusyGroup::Skip => Present.busy_group(),
            BusyGroup::Wait => Wait::Wait,
        }
    }

    fn spreads(&self) -> bool {
        self.placement == Placement::Lanes
    }

    fn next_with_order(&self, groups: &Summaries, order: u32, from: u32) -> Option<u32> {
        match self.group_search {
            GroupSearch::Index => Present.next_with_order(groups, order, from),
            // The bounds are read without the groups' guards, so like the index they may be
            // outdated.
            GroupSearch::Scan => {
                (from..groups.groups()).find(|group| groups.bound(*group) >> order > 0)
            }
        }
    }

    fn next_with_inodes(&self, groups: &Summaries, from: u32) -> Option<u32> {
        match self.group_search {
            GroupSearch::Index => Present.next_with_inodes(groups, from),
            GroupSearch::Scan => (from..groups.groups()).find(|group| groups.has_inodes(*group)),
        }
    }

    fn stream_goal(&self, ino: Ino) -> Option<u32> {
        self.stream(ino).map(|last| *last.lock())
    }

    fn note_stream(&self, ino: Ino, group: u32) {
        if let Some(last) = self.stream(ino) {
            *last.lock() = group;
        }
    }

    fn claim_inode(&self, group: &Visit<'_>) -> Result<Attempt<u32>, Error> {
        match self.inode_claim {
            InodeClaiming::OneStep => Present.claim_inode(group),
            InodeClaiming::TwoStep => claim_inode_in_two_steps(group),
        }
    }
}

/// Finds a free inode under the group's guard, and releases the guard. Then takes the guard again,
/// and takes the inode if it is still free; otherwise continues the search after that inode.
fn claim_inode_in_two_steps(group: &Visit<'_>) -> Result<Attempt<u32>, Error> {
    let mut from = 0;
    loop {
        let found = match group.enter(|ready| ready.find_inode(from))? {
            Attempt::Taken(found) => found,
            other => return Ok(other),
        };
        let take = |ready: &mut Ready| group.take_inode(ready, found).then_some(found);
        match group.enter(take)? {
            Attempt::Lacking => {
                group.bitmaps.shared.tally.add(Count::BitsLost, 1);
                from = found + 1;
            }
            other => return Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_the_groups_that_the_index_finds() {
        let groups = Summaries::new(100);
        let scan = implementation(
            &Policies { group_search: GroupSearch::Scan, ..Policies::default() },
            groups.groups(),
        );
        groups.set_longest(7, 15);
        groups.raise(50, 16);
        groups.set_open_inodes(50, 1);
        for from in 0..100 {
            assert_eq!(
                Present.next_with_inodes(&groups, from),
                scan.next_with_inodes(&groups, from)
            );
            for order in 0..6 {
                let index = Present.next_with_order(&groups, order, from);
                let found = scan.next_with_order(&groups, order, from);
                assert_eq!(index, found, "order {order} from {from}");
            }
        }
    }
}
