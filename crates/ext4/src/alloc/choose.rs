//! Decides in which order groups are tried. This module does no I/O itself: it reaches the groups
//! only through [`Candidates`].
//!
//! The passes follow the kernel's mballoc: first the goal; then groups with room for all wanted
//! blocks; then groups with the longest runs, down to the caller's minimum; finally all groups, and
//! this last pass waits for their guards. Every pass but the last skips groups whose guard is held.
//! Such a pass tries only a limited number of the groups that the index finds, so its cost does not
//! grow with the number of groups. Inode numbers are searched for in the same way, with a single
//! pass between the goal and the last resort.

use crate::alloc::summary::{order_for, order_of};
use lanefs_ondisk::superblock::Superblock;

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

// The stripe that large allocations are aligned to.

/// Returns the length of the stripe in clusters. Like the kernel's ext4, uses `option` if set, else
/// the superblock's stripe width, else the superblock's stride. If none of them is set, uses
/// `row_bytes`, the length in bytes of a whole row of the underlying device. A stripe longer than a
/// group counts as not set. Returns 0 if there is no stripe or, as in the kernel, if the stripe
/// does not consist of whole clusters.
pub(crate) fn stripe_of(superblock: &Superblock, option: u32, row_bytes: u64) -> u32 {
    let geometry = superblock.geometry();
    let row = row_bytes / geometry.block_size().bytes() as u64;
    let stride = u64::from(superblock.raid_stride());
    [u64::from(option), u64::from(superblock.raid_stripe_width()), stride, row]
        .into_iter()
        .filter_map(|blocks| u32::try_from(blocks).ok())
        .find(|blocks| (1..=geometry.blocks_per_group()).contains(blocks))
        .filter(|blocks| geometry.clusters().offset(u64::from(*blocks)) == 0)
        .map(|blocks| blocks >> geometry.cluster_bits())
        // A stripe of one cluster counts as none, since every cluster is aligned to it.
        .filter(|clusters| *clusters > 1)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
