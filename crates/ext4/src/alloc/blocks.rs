//! Claims blocks.

use crate::alloc::caller::Caller;
use crate::alloc::choose::{Ask, Attempt, Candidates, Goal, Wait, choose};
use crate::alloc::claim::Claim;
use crate::alloc::groups::{Found, Groups, Request};
use crate::alloc::runs::Rows;
use crate::alloc::space::{Alone, Draw};
use crate::alloc::tally::Count;
use crate::alloc::visit::{Visit, Worker};
use crate::volume::reader::BlockReader;
use lanefs_ondisk::Group;
use lanefs_plan::Error;

/// The largest number of times that a claim searches all groups. If none of these searches finds a
/// run, the claim fails.
const ROUNDS: u32 = 8;

impl Groups {
    /// Claims one run of blocks. May sleep.
    ///
    /// # Errors
    /// [`Error::NoSpace`]. Only with `alone` does this mean that the space is used up: without
    /// `alone`, other threads may have drawn blocks that they will give back unused. Damage or an
    /// I/O error in a bitmap is an error, too. A damaged group is reported once, and searches skip
    /// it from then on.
    pub(crate) fn claim_blocks(
        &self,
        read: &dyn BlockReader,
        request: &Request,
        alone: Option<&Alone<'_>>,
    ) -> Result<Found<'_>, Error> {
        let shared = &*self.shared;
        let geometry = shared.format.geometry();
        let (clusters, most) = (geometry.clusters(), geometry.clusters_per_group());
        let want = clusters.holding(request.want).clamp(1, most);
        let ahead = clusters.holding(request.ahead).min(most - want);
        let draw = Draw { want, ahead, privilege: request.privilege };
        let mut drawn = shared.space.draw(&draw, alone).ok_or(Error::NoSpace)?;
        self.count(Count::BlockSearches, 1);
        let caller = Caller::current();
        let start = self.region_of(caller).start;
        let place = geometry.group_of(request.goal);
        let (group, bit) = place.map_or((start, 0), |(group, bit)| (group.0, bit));
        let stream =
            request.stream.and_then(|ino| self.allocation.stream_goal(&shared.summaries, ino));
        let goal = Goal { group, if_busy: start, if_lacking: stream.unwrap_or(group + 1) };
        let by = request.owner.and_then(|owner| self.worker(caller, owner, group));
        let groups = BlockSearch { groups: self, read, by: by.as_ref() };
        let Run { group, bit, len } = self.search(&groups, request, goal, bit, drawn.blocks())?;
        drawn.use_up(len);
        let start = geometry.block_at(Group(group), bit).ok_or(Error::NoSpace)?;
        let len = len << clusters.bits();
        let elsewhere = by.and_then(|by| self.escape(&by));
        Ok(Found { claim: Claim::new(self.shared.clone(), start, len), drawn, elsewhere })
    }

    fn search(
        &self,
        groups: &BlockSearch<'_>,
        request: &Request,
        goal: Goal,
        bit: u32,
        drawn: u32,
    ) -> Result<Run, Error> {
        let at_least = self.shared.format.geometry().clusters().holding(request.at_least);
        for _ in 0..ROUNDS {
            let asks = Ask::in_turn(bit, drawn, at_least.min(drawn));
            if let Some(run) = choose(groups, goal, asks, self.allocation.busy_group())? {
                if let Some(ino) = request.stream {
                    self.allocation.note_stream(ino, run.group);
                }
                return Ok(run);
            }
            // The draw guarantees that free blocks exist. Other threads must have freed them in
            // groups that this search had already passed.
        }
        Err(Error::NoSpace)
    }
}

/// A claimed run within a group, in bits of its bitmap.
struct Run {
    group: u32,
    bit: u32,
    len: u32,
}

/// The [`Candidates`] of a search for blocks.
struct BlockSearch<'a> {
    groups: &'a Groups,
    read: &'a dyn BlockReader,
    by: Option<&'a Worker>,
}

impl Candidates for BlockSearch<'_> {
    type Ask = Ask;
    type Claim = Run;
    type Error = Error;

    fn groups(&self) -> u32 {
        self.groups.shared.summaries.groups()
    }

    fn has_any(&self, group: u32) -> bool {
        self.groups.shared.summaries.has_blocks(group)
    }

    fn next(&self, ask: &Ask, from: u32) -> Option<u32> {
        self.groups.allocation.next_with_order(&self.groups.shared.summaries, ask.order, from)
    }

    fn attempt(&self, group: u32, ask: &Ask, wait: Wait) -> Result<Attempt<Run>, Error> {
        if !self.has_any(group) {
            return Ok(Attempt::Lacking);
        }
        let shared = &*self.groups.shared;
        let geometry = shared.format.geometry();
        let first = geometry.group_first_block(Group(group)).map_or(0, |block| block.0);
        let rows = Rows::in_group(shared.row, first >> geometry.cluster_bits());
        self.groups.count(Count::GroupsTried, 1);
        let visit =
            Visit { bitmaps: &self.groups.bitmaps, read: self.read, group, wait, by: self.by };
        visit.enter(|ready| match ready.claim_run(ask, shared.summaries.bound(group), rows) {
            Ok(run) => {
                let open = ready.blocks.open;
                shared.summaries.set_open_blocks(group, open);
                if open == 0 {
                    shared.summaries.set_longest(group, 0);
                }
                Some(Run { group, bit: run.start, len: run.end - run.start })
            }
            Err(longest) => {
                shared.summaries.set_longest(group, longest);
                None
            }
        })
    }
}
