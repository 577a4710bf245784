//! Decides in which order groups are tried. Does no I/O: the groups are behind [`Candidates`].
//!
//! The passes follow mballoc: first the goal; then groups with room for all wanted blocks; then
//! groups with the longest runs, down to the caller's minimum; last any group, waiting for its
//! guard. Every pass but the last skips groups whose guard is held, and tries a bounded number of
//! groups, which the index finds. So the cost does not grow with the number of groups.

use super::summary::{order_for, order_of};
use crate::policy::BusyGroup;

/// How many groups one pass tries before the next takes over.
const TRIES: usize = 24;

/// Describes the run that is wanted from a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The bit to start at; 0 means anywhere.
    pub from: u32,
    /// Wanted blocks; a run is never longer.
    pub want: u32,
    /// The shortest run that is accepted at `from`.
    pub least_at_goal: u32,
    /// The shortest run that is accepted elsewhere, if no run has `want` blocks.
    pub least: u32,
}

/// A claimed run within a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub group: u32,
    pub bit: u32,
    pub len: u32,
}

/// The result of trying a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The run was claimed for the caller.
    Taken(Run),
    /// Another thread held the guard.
    Busy,
    /// The group has no such run; its hints were updated.
    Lacking,
}

/// Whether to wait for a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Skip,
    Wait,
}

/// The groups of a file system.
pub(crate) trait Candidates {
    type Error;
    fn groups(&self) -> u32;
    fn open_blocks(&self, group: u32) -> u32;
    /// Returns the next group at `from` or later that may have a run of `order`. A group that has
    /// one is missed only briefly, since the hints may be old.
    fn next_with_order(&self, order: u32, from: u32) -> Option<u32>;
    fn attempt(&self, group: u32, ask: &Ask, wait: Wait) -> Result<Attempt, Self::Error>;
}

/// Where the search starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Goal {
    pub group: u32,
    pub bit: u32,
    /// The group to try next if the goal's group is busy, so that threads that contend there
    /// separate.
    pub home: u32,
    /// The group to try next if the goal's group has no room: the stream goal, if one is set.
    pub stream: Option<u32>,
}

/// Claims a run of `want` blocks near `goal`; if there is none, a shorter run of at least
/// `at_least` blocks; at last a run of any length. `None` if all groups are full.
pub(crate) fn choose<C: Candidates>(
    groups: &C,
    goal: Goal,
    want: u32,
    at_least: u32,
    busy: BusyGroup,
) -> Result<Option<Run>, C::Error> {
    let at_least = at_least.clamp(1, want);
    let wait = match busy {
        BusyGroup::Skip => Wait::Skip,
        BusyGroup::Wait => Wait::Wait,
    };
    let ask = Ask { from: goal.bit, want, least_at_goal: at_least, least: want };
    let start = match groups.attempt(goal.group, &ask, wait)? {
        Attempt::Taken(run) => return Ok(Some(run)),
        Attempt::Lacking => goal.stream.unwrap_or(goal.group + 1),
        Attempt::Busy => goal.home,
    };
    let chooser = Chooser { groups, start: start % groups.groups(), wait };
    let whole = Ask { from: 0, want, least_at_goal: want, least: want };
    if let Some(run) = chooser.pass(order_for(want), &whole)? {
        return Ok(Some(run));
    }
    let best = Ask { least: at_least, ..whole };
    for order in (order_of(at_least)..=order_of(want)).rev() {
        if let Some(run) = chooser.pass(order, &best)? {
            return Ok(Some(run));
        }
    }
    chooser.any(&Ask { least: 1, ..whole })
}

struct Chooser<'a, C> {
    groups: &'a C,
    start: u32,
    wait: Wait,
}

impl<C: Candidates> Chooser<'_, C> {
    /// Tries the groups that may have a run of `order`, from the start around to it again.
    fn pass(&self, order: u32, ask: &Ask) -> Result<Option<Run>, C::Error> {
        let mut tries = 0;
        for part in [self.start..self.groups.groups(), 0..self.start] {
            let mut from = part.start;
            while let Some(group) = self.groups.next_with_order(order, from)
                && group < part.end
                && tries < TRIES
            {
                if let Attempt::Taken(run) = self.groups.attempt(group, ask, self.wait)? {
                    return Ok(Some(run));
                }
                from = group + 1;
                tries += 1;
            }
        }
        Ok(None)
    }

    /// The last resort: tries every group that is not full, and waits for its guard. The groups in
    /// the index come first, because a scan of a million full groups takes long.
    fn any(&self, ask: &Ask) -> Result<Option<Run>, C::Error> {
        for part in [self.start..self.groups.groups(), 0..self.start] {
            let mut from = part.start;
            while let Some(group) = self.groups.next_with_order(0, from)
                && group < part.end
            {
                if let Attempt::Taken(run) = self.groups.attempt(group, ask, Wait::Wait)? {
                    return Ok(Some(run));
                }
                from = group + 1;
            }
        }
        for group in (self.start..self.groups.groups()).chain(0..self.start) {
            if self.groups.open_blocks(group) == 0 {
                continue;
            }
            if let Attempt::Taken(run) = self.groups.attempt(group, ask, Wait::Wait)? {
                return Ok(Some(run));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::convert::Infallible;

    /// Groups of one run each.
    struct Fake {
        runs: Vec<u32>,
        busy: Vec<bool>,
        tried: RefCell<Vec<(u32, Wait)>>,
        looked: std::cell::Cell<u32>,
    }

    impl Fake {
        fn new(runs: &[u32]) -> Fake {
            let (runs, busy) = (runs.to_vec(), vec![false; runs.len()]);
            Fake { runs, busy, tried: RefCell::default(), looked: std::cell::Cell::default() }
        }

        fn choose(&self, group: u32, want: u32, at_least: u32) -> Option<Run> {
            let goal = Goal { group, bit: 0, home: 3, stream: None };
            let Ok(run) = choose(self, goal, want, at_least, BusyGroup::Skip);
            run
        }

        fn tried(&self) -> Vec<u32> {
            self.tried.take().into_iter().map(|(group, _)| group).collect()
        }
    }

    impl Candidates for Fake {
        type Error = Infallible;

        fn groups(&self) -> u32 {
            self.runs.len() as u32
        }

        fn open_blocks(&self, group: u32) -> u32 {
            self.looked.set(self.looked.get() + 1);
            self.runs[group as usize]
        }

        fn next_with_order(&self, order: u32, from: u32) -> Option<u32> {
            (from..self.groups()).find(|group| {
                let run = self.runs[*group as usize];
                run > 0 && order_of(run) >= order
            })
        }

        fn attempt(&self, group: u32, ask: &Ask, wait: Wait) -> Result<Attempt, Infallible> {
            self.tried.borrow_mut().push((group, wait));
            if self.busy[group as usize] && wait == Wait::Skip {
                return Ok(Attempt::Busy);
            }
            let len = self.runs[group as usize].min(ask.want);
            let least = ask.least.min(ask.least_at_goal);
            Ok(if len > 0 && len >= least {
                Attempt::Taken(Run { group, bit: 0, len })
            } else {
                Attempt::Lacking
            })
        }
    }

    fn taken(run: Option<Run>) -> Option<(u32, u32)> {
        run.map(|run| (run.group, run.len))
    }

    #[test]
    fn the_goal_comes_first_and_then_the_next_group_with_room_for_all() {
        let fake = Fake::new(&[100, 10, 20, 64, 100]);
        assert_eq!(taken(fake.choose(1, 10, 10)), Some((1, 10)));
        assert_eq!(taken(fake.choose(1, 50, 50)), Some((3, 50)));
        assert_eq!(taken(fake.choose(1, 65, 65)), Some((4, 65)), "a lower order may do too");
        assert_eq!(taken(fake.choose(4, 20, 20)), Some((4, 20)));
    }

    #[test]
    fn less_than_wanted_is_taken_from_the_best_group_and_not_under_the_least() {
        let fake = Fake::new(&[8, 10, 20, 33, 9]);
        assert_eq!(taken(fake.choose(0, 100, 30)), Some((3, 33)));
        assert_eq!(taken(fake.choose(0, 100, 8)), Some((0, 8)), "the goal is better still");
        let small = Fake::new(&[0, 3, 5, 0, 1]);
        assert_eq!(taken(small.choose(0, 100, 50)), Some((1, 3)), "anything at last");
        assert_eq!(taken(Fake::new(&[0, 0]).choose(1, 1, 1)), None);
    }

    #[test]
    fn busy_groups_are_skipped_and_waited_for_at_last() {
        let mut fake = Fake::new(&[100; 6]);
        fake.busy = vec![true, false, false, true, false, false];
        assert_eq!(taken(fake.choose(0, 10, 10)), Some((4, 10)), "from home on, not from the goal");
        assert_eq!(fake.tried(), [0, 3, 4]);
        fake.busy = vec![true; 6];
        assert_eq!(taken(fake.choose(1, 10, 10)), Some((3, 10)));
        assert_eq!(fake.tried.borrow().last(), Some(&(3, Wait::Wait)));
    }

    #[test]
    fn a_million_groups_cost_no_more_tries_than_a_hundred() {
        for groups in [100, 1_000_000] {
            let mut runs = vec![5; groups];
            runs[groups - 1] = 4096;
            let fake = Fake::new(&runs);
            assert_eq!(taken(fake.choose(0, 4096, 4096)), Some((groups as u32 - 1, 4096)));
            assert_eq!(fake.tried().len(), 2);
        }
    }

    #[test]
    fn the_last_resort_finds_the_one_group_that_is_not_full_without_looking_at_the_others() {
        let mut runs = vec![0; 1_000_000];
        runs[999_998] = 3;
        let fake = Fake::new(&runs);
        assert_eq!(taken(fake.choose(5, 64, 64)), Some((999_998, 3)));
        assert_eq!(fake.looked.get(), 0, "at groups that the index does not know");
        assert!(fake.tried().len() < 4);
    }

    #[test]
    fn with_the_waiting_policy_no_group_is_skipped() {
        let mut fake = Fake::new(&[100; 4]);
        fake.busy[2] = true;
        let goal = Goal { group: 2, bit: 0, home: 0, stream: None };
        let Ok(run) = choose(&fake, goal, 10, 10, BusyGroup::Wait);
        assert_eq!(taken(run), Some((2, 10)));
    }
}
