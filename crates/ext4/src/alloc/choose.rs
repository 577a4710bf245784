//! Decides in which order groups are tried. This module does no I/O itself: it reaches the groups
//! only through [`Candidates`].
//!
//! The passes follow the kernel's mballoc: first the goal; then groups with room for all wanted
//! blocks; then groups with the longest runs, down to the caller's minimum; finally all groups, and
//! this last pass waits for their guards. Every pass but the last skips groups whose guard is held.
//! Such a pass tries only a limited number of the groups that the index finds, so its cost does not
//! grow with the number of groups. Inode numbers are searched for in the same way, with a single
//! pass between the goal and the last resort.

use super::summary::{order_for, order_of};

/// The number of groups that one pass tries before the next pass starts.
const TRIES: usize = 24;

/// A request for a run of blocks in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    /// A group is tried only if it may have a run of this order (base-2 logarithm of the length) or
    /// longer.
    pub order: u32,
    /// The bit to start at; 0 means anywhere.
    pub from: u32,
    /// The number of wanted blocks; a longer run is never returned.
    pub want: u32,
    /// The shortest run that is accepted at `from`.
    pub least_at_goal: u32,
    /// If no run has `want` blocks, a run that does not start at `from` is accepted if it has at
    /// least this many blocks.
    pub least: u32,
}

/// The result of trying a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt<T> {
    /// The request succeeded; this is the claim.
    Taken(T),
    /// Another thread held the guard.
    Busy,
    /// The group cannot satisfy the request; its hints were updated.
    Lacking,
}

impl<T> Attempt<T> {
    pub(crate) fn map<U>(self, claim: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Attempt::Taken(taken) => Attempt::Taken(claim(taken)),
            Attempt::Busy => Attempt::Busy,
            Attempt::Lacking => Attempt::Lacking,
        }
    }
}

/// What a search does at a group whose guard another thread holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It tries another group.
    Skip,
    /// It waits.
    Wait,
}

/// The groups of a file system, searched for blocks or for inode numbers.
pub(crate) trait Candidates {
    /// A request to a group.
    type Ask;
    /// The result of a successful request.
    type Claim;
    type Error;
    fn groups(&self) -> u32;
    /// Returns whether the group has anything that can be claimed.
    fn has_any(&self, group: u32) -> bool;
    /// Returns the next group at `from` or later that may satisfy the request. Hints can be
    /// outdated for a moment, so a suitable group is sometimes missed.
    fn next(&self, ask: &Self::Ask, from: u32) -> Option<u32>;
    fn attempt(
        &self,
        group: u32,
        ask: &Self::Ask,
        wait: Wait,
    ) -> Result<Attempt<Self::Claim>, Self::Error>;
}

/// The group at which a search starts, and the groups that it tries next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Goal {
    pub group: u32,
    /// The group to try next if the goal's group is busy. With the default decisions it is in the
    /// region of the caller, so that contending threads spread over the groups.
    pub if_busy: u32,
    /// The group to try next if the goal's group cannot satisfy the request.
    pub if_lacking: u32,
}

/// The requests that the passes make, in order.
pub(crate) struct Asks<A, P> {
    pub at_goal: A,
    pub passes: P,
    pub last: A,
}

impl Ask {
    /// Creates the requests for a run of `want` blocks: first at the bit `from` of the goal's
    /// group; then elsewhere; then for a shorter run of at least `at_least` blocks; finally for a
    /// run of any length.
    pub(crate) fn in_turn(
        from: u32,
        want: u32,
        at_least: u32,
    ) -> Asks<Ask, impl Iterator<Item = Ask>> {
        let at_least = at_least.clamp(1, want);
        let whole = Ask { order: order_for(want), from: 0, want, least_at_goal: want, least: want };
        let best = move |order| Ask { order, least: at_least, ..whole };
        let shorter = (order_of(at_least)..=order_of(want)).rev().map(best);
        Asks {
            at_goal: Ask { from, least_at_goal: at_least, ..whole },
            passes: std::iter::once(whole).chain(shorter),
            last: Ask { order: 0, least: 1, ..whole },
        }
    }
}

/// Tries the requests of `asks` in order, until a group satisfies one of them. The first request is
/// tried only in the goal's group. All passes except the last treat busy groups according to
/// `busy`. Returns `None` if no group satisfies the last request.
pub(crate) fn choose<C: Candidates>(
    groups: &C,
    goal: Goal,
    asks: Asks<C::Ask, impl Iterator<Item = C::Ask>>,
    busy: Wait,
) -> Result<Option<C::Claim>, C::Error> {
    let start = match groups.attempt(goal.group, &asks.at_goal, busy)? {
        Attempt::Taken(claim) => return Ok(Some(claim)),
        Attempt::Lacking => goal.if_lacking,
        Attempt::Busy => goal.if_busy,
    };
    let chooser = Chooser { groups, start: start % groups.groups() };
    for ask in asks.passes {
        if let Some(claim) = chooser.pass(&ask, busy, TRIES)? {
            return Ok(Some(claim));
        }
    }
    // The last resort tries the groups in the index first, because scanning a million full groups
    // takes long. Then it tries all groups, because the index is only a hint and may miss some.
    match chooser.pass(&asks.last, Wait::Wait, usize::MAX)? {
        None => chooser.all(&asks.last),
        claim => Ok(claim),
    }
}

struct Chooser<'a, C> {
    groups: &'a C,
    start: u32,
}

impl<C: Candidates> Chooser<'_, C> {
    /// Tries up to `tries` groups that may satisfy the request. Begins at the group where the
    /// search starts, and wraps around after the last group.
    fn pass(&self, ask: &C::Ask, wait: Wait, tries: usize) -> Result<Option<C::Claim>, C::Error> {
        let mut tried = 0;
        for part in [self.start..self.groups.groups(), 0..self.start] {
            let mut from = part.start;
            while let Some(group) = self.groups.next(ask, from)
                && group < part.end
                && tried < tries
            {
                if let Attempt::Taken(claim) = self.groups.attempt(group, ask, wait)? {
                    return Ok(Some(claim));
                }
                from = group + 1;
                tried += 1;
            }
        }
        Ok(None)
    }

    /// Tries every group that is not full, and waits for its guard.
    fn all(&self, ask: &C::Ask) -> Result<Option<C::Claim>, C::Error> {
        for group in (self.start..self.groups.groups()).chain(0..self.start) {
            if self.groups.has_any(group)
                && let Attempt::Taken(claim) = self.groups.attempt(group, ask, Wait::Wait)?
            {
                return Ok(Some(claim));
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

    /// A file system in which each group has one run of free blocks.
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

        /// Chooses a run, and returns its group and length.
        fn choose(&self, group: u32, want: u32, at_least: u32) -> Option<(u32, u32)> {
            let goal = Goal { group, if_busy: 3, if_lacking: group + 1 };
            let Ok(run) = choose(self, goal, Ask::in_turn(0, want, at_least), Wait::Skip);
            run
        }

        fn tried(&self) -> Vec<u32> {
            self.tried.take().into_iter().map(|(group, _)| group).collect()
        }
    }

    impl Candidates for Fake {
        type Ask = Ask;
        type Claim = (u32, u32);
        type Error = Infallible;

        fn groups(&self) -> u32 {
            self.runs.len() as u32
        }

        fn has_any(&self, group: u32) -> bool {
            self.looked.set(self.looked.get() + 1);
            self.runs[group as usize] > 0
        }

        fn next(&self, ask: &Ask, from: u32) -> Option<u32> {
            (from..self.groups()).find(|group| {
                let run = self.runs[*group as usize];
                run > 0 && order_of(run) >= ask.order
            })
        }

        fn attempt(
            &self,
            group: u32,
            ask: &Ask,
            wait: Wait,
        ) -> Result<Attempt<(u32, u32)>, Infallible> {
            self.tried.borrow_mut().push((group, wait));
            if self.busy[group as usize] && wait == Wait::Skip {
                return Ok(Attempt::Busy);
            }
            let len = self.runs[group as usize].min(ask.want);
            let least = ask.least.min(ask.least_at_goal);
            Ok(if len > 0 && len >= least {
                Attempt::Taken((group, len))
            } else {
                Attempt::Lacking
            })
        }
    }

    #[test]
    fn the_goal_comes_first_and_then_the_next_group_with_room_for_all() {
        let fake = Fake::new(&[100, 10, 20, 64, 100]);
        assert_eq!(fake.choose(1, 10, 10), Some((1, 10)));
        assert_eq!(fake.choose(1, 50, 50), Some((3, 50)));
        assert_eq!(fake.choose(1, 65, 65), Some((4, 65)), "a lower order may do too");
        assert_eq!(fake.choose(4, 20, 20), Some((4, 20)));
    }

    #[test]
    fn less_than_wanted_is_taken_from_the_best_group_and_not_under_the_least() {
        let fake = Fake::new(&[8, 10, 20, 33, 9]);
        assert_eq!(fake.choose(0, 100, 30), Some((3, 33)));
        assert_eq!(fake.choose(0, 100, 8), Some((0, 8)), "the goal is better still");
        let small = Fake::new(&[0, 3, 5, 0, 1]);
        assert_eq!(small.choose(0, 100, 50), Some((1, 3)), "anything at last");
        assert_eq!(Fake::new(&[0, 0]).choose(1, 1, 1), None);
    }

    #[test]
    fn busy_groups_are_skipped_and_waited_for_at_last() {
        let mut fake = Fake::new(&[100; 6]);
        fake.busy = vec![true, false, false, true, false, false];
        assert_eq!(fake.choose(0, 10, 10), Some((4, 10)), "from the group for busy goals on");
        assert_eq!(fake.tried(), [0, 3, 4]);
        fake.busy = vec![true; 6];
        assert_eq!(fake.choose(1, 10, 10), Some((3, 10)));
        assert_eq!(fake.tried.borrow().last(), Some(&(3, Wait::Wait)));
    }

    #[test]
    fn a_million_groups_cost_no_more_tries_than_a_hundred() {
        for groups in [100, 1_000_000] {
            let mut runs = vec![5; groups];
            runs[groups - 1] = 4096;
            let fake = Fake::new(&runs);
            assert_eq!(fake.choose(0, 4096, 4096), Some((groups as u32 - 1, 4096)));
            assert_eq!(fake.tried().len(), 2);
        }
    }

    #[test]
    fn the_last_resort_finds_the_one_group_that_is_not_full_without_looking_at_the_others() {
        let mut runs = vec![0; 1_000_000];
        runs[999_998] = 3;
        let fake = Fake::new(&runs);
        assert_eq!(fake.choose(5, 64, 64), Some((999_998, 3)));
        assert_eq!(fake.looked.get(), 0, "at groups that the index does not know");
        assert!(fake.tried().len() < 4);
    }

    #[test]
    fn if_searches_wait_no_group_is_skipped() {
        let mut fake = Fake::new(&[100; 4]);
        fake.busy[2] = true;
        let goal = Goal { group: 2, if_busy: 0, if_lacking: 3 };
        let Ok(run) = choose(&fake, goal, Ask::in_turn(0, 10, 10), Wait::Wait);
        assert_eq!(run, Some((2, 10)));
    }
}
