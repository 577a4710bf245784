//! Claims of blocks.

use super::choose::{Ask, Attempt, Candidates, Goal, Run, Wait, choose};
use super::claim::Claim;
use super::group::Maps;
use super::groups::{Found, Groups, Request};
use super::region;
use super::runs::Rows;
use super::space::{Alone, Draw};
use crate::error::Error;
use crate::policy::GroupSearch;
use crate::volume::reader::BlockReader;
use lanefs_lanes::Lane;
#[cfg(test)]
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::Group;

/// How often all groups are searched for blocks that are surely there.
const ROUNDS: u32 = 8;

impl Groups {
    /// Claims one run of blocks. Sleeps. [`Error::NoSpace`] is final only for a caller that passes
    /// `alone`: without it, claims under way may have drawn blocks that they will not use.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; damage or an I/O error in a bitmap. A damaged group is reported once,
    /// and skipped from then on.
    pub(crate) fn claim_blocks(
        &self,
        read: &dyn BlockReader,
        request: &Request,
        alone: Option<&Alone<'_>>,
    ) -> Result<Found<'_>, Error> {
        let shared = &*self.shared;
        let most = shared.format.geometry.blocks_per_group();
        let want = request.want.clamp(1, most);
        let ahead = request.ahead.min(most - want);
        let draw = Draw { want, ahead, privilege: request.privilege };
        let mut drawn = shared.space.draw(&draw, alone).ok_or(Error::NoSpace)?;
        let Run { group, bit, len } = self.search(read, request, drawn.blocks())?;
        drawn.use_up(len);
        let start = shared.format.geometry.block_at(Group(group), bit).ok_or(Error::NoSpace)?;
        Ok(Found { claim: Claim::new(self.shared.clone(), start, len), drawn })
    }

    fn search(&self, read: &dyn BlockReader, request: &Request, drawn: u32) -> Result<Run, Error> {
        let shared = &*self.shared;
        let home = region::home(Lane::current(), shared.summaries.groups()).start;
        let place = shared.format.geometry.group_of(request.goal);
        let (group, bit) = place.map_or((home, 0), |(group, bit)| (group.0, bit));
        let stream_goal = request.stream.and_then(|ino| {
            let count = self.streams.len().max(1);
            self.streams.get(ino.0 as usize % count)
        });
        let stream = stream_goal.map(|last| *last.lock());
        let goal = Goal { group, bit, home, stream };
        let search = Search { groups: self, read };
        for _ in 0..ROUNDS {
            let least = request.at_least.min(drawn);
            if let Some(run) = choose(&search, goal, drawn, least, self.policies.busy_group)? {
                if let Some(last) = stream_goal {
                    *last.lock() = run.group;
                }
                return Ok(run);
            }
            // Blocks were drawn, so free blocks exist: other threads freed them during this search.
        }
        Err(Error::NoSpace)
    }
}

/// The groups as the chooser sees them.
struct Search<'a> {
    groups: &'a Groups,
    read: &'a dyn BlockReader,
}

impl Candidates for Search<'_> {
    type Error = Error;

    fn groups(&self) -> u32 {
        self.groups.shared.summaries.groups()
    }

    fn open_blocks(&self, group: u32) -> u32 {
        #[cfg(test)]
        self.groups.looked.fetch_add(1, Ordering::Relaxed);
        self.groups.shared.summaries.open_blocks(group)
    }

    fn next_with_order(&self, order: u32, from: u32) -> Option<u32> {
        let summaries = &self.groups.shared.summaries;
        match self.groups.policies.group_search {
            GroupSearch::Index => summaries.next_with_order(order, from),
            GroupSearch::Scan => summaries.scan_for_order(order, from),
        }
    }

    fn attempt(&self, group: u32, ask: &Ask, wait: Wait) -> Result<Attempt, Error> {
        #[cfg(test)]
        self.groups.looked.fetch_add(1, Ordering::Relaxed);
        let shared = &self.groups.shared;
        if shared.summaries.open_blocks(group) == 0 {
            return Ok(Attempt::Lacking);
        }
        let cell = &shared.cells[group as usize];
        let mut _hold = None;
        loop {
            let guard = match wait {
                Wait::Wait => Some(cell.state.lock()),
                Wait::Skip => cell.state.try_lock(),
            };
            let Some(mut state) = guard else { return Ok(Attempt::Busy) };
            let ready = match &mut state.maps {
                Maps::Ready(ready) => ready,
                Maps::Damaged(_) => return Ok(Attempt::Lacking),
                Maps::Unread => {
                    drop(state);
                    _hold = Some(self.groups.load(self.read, Group(group))?);
                    continue;
                }
            };
            let first = shared.format.geometry.group_first_block(Group(group));
            let rows = Rows::in_group(shared.row, first.map_or(0, |block| block.0));
            return Ok(match ready.claim_run(ask, shared.summaries.bound(group), rows) {
                Ok(run) => {
                    let open = ready.blocks.open;
                    shared.summaries.set_open_blocks(group, open);
                    if open == 0 {
                        shared.summaries.set_longest(group, 0);
                    }
                    Attempt::Taken(Run { group, bit: run.start, len: run.end - run.start })
                }
                Err(longest) => {
                    shared.summaries.set_longest(group, longest);
                    Attempt::Lacking
                }
            });
        }
    }
}
