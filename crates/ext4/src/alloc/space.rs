//! How many blocks may still be promised.
//!
//! Whoever looks for blocks first draws that many from here, so that a search that starts is one
//! that can succeed, and blocks kept for the privileged stay theirs. Lanes hold some in advance;
//! near the end nobody does, and the numbers are exact.

use super::groups::Privilege;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::{MAX_LANES, Mutex, PerLane, Rank};

/// A lane draws at most so many blocks ahead: enough for thousands of small files.
const AHEAD: u64 = 4096;

/// *Invariant*: pool, stashes and what was drawn add up to the blocks that are not taken in any
/// group, once those that draw and return are done.
#[derive(Debug)]
pub(crate) struct Space {
    /// [rank LaneList]
    stashes: PerLane<Mutex<u64>>,
    /// [rank Guard, and no group's guard is held with it]
    pool: Mutex<Pool>,
    /// The reserve is not full, or all is lost below it: what comes back goes to the pool.
    /// Written under the pool's lock; a stale read delays the reserve by one stash.
    short: AtomicBool,
    reserved: u64,
}

#[derive(Debug)]
struct Pool {
    open: u64,
    /// For [`Privilege::Root`]; at most `reserved`, filled first.
    reserve: u64,
}

impl Space {
    /// `free` blocks, of which the last `reserved` are for the privileged.
    pub(crate) fn new(free: u64, reserved: u64) -> Space {
        let reserve = free.min(reserved);
        Space {
            stashes: PerLane::new(|_| Mutex::new(Rank::LaneList, 0)),
            pool: Mutex::new(Rank::Guard, Pool { open: free - reserve, reserve }),
            short: AtomicBool::new(reserve < reserved),
            reserved,
        }
    }

    /// Draws up to `want` blocks: fewer only if there are no more, 0 if there is none.
    pub(crate) fn draw(&self, want: u32, privilege: Privilege) -> u32 {
        let want = u64::from(want);
        {
            let mut stash = self.stashes.mine().lock();
            if *stash >= want {
                *stash -= want;
                return want as u32;
            }
        }
        let mut pool = self.pool.lock();
        if pool.open < want {
            self.collect(&mut pool);
        }
        let mut drawn = want.min(pool.open);
        pool.open -= drawn;
        if drawn < want && privilege == Privilege::Root {
            let rest = (want - drawn).min(pool.reserve);
            pool.reserve -= rest;
            drawn += rest;
        }
        self.note_shortage(&pool);
        let ahead = (pool.open / (4 * MAX_LANES as u64)).min(AHEAD);
        if ahead > 0 {
            pool.open -= ahead;
            *self.stashes.mine().lock() += ahead;
        }
        drawn as u32
    }

    /// Gives back what was drawn and not used, or what became free.
    pub(crate) fn put_back(&self, blocks: u32) {
        if blocks == 0 {
            return;
        }
        let mut excess = u64::from(blocks);
        if !self.short.load(Ordering::Relaxed) {
            let mut stash = self.stashes.mine().lock();
            *stash += excess;
            if *stash <= 2 * AHEAD {
                return;
            }
            excess = *stash - AHEAD;
            *stash = AHEAD;
        }
        let mut pool = self.pool.lock();
        pool.open += excess;
        self.refill(&mut pool);
    }

    /// `blocks` that were thought free are not to be had: their group is damaged.
    pub(crate) fn lose(&self, blocks: u32) {
        let mut pool = self.pool.lock();
        self.collect(&mut pool);
        let lost = u64::from(blocks);
        let from_reserve = lost.saturating_sub(pool.open).min(pool.reserve);
        pool.open = pool.open.saturating_sub(lost);
        pool.reserve -= from_reserve;
        self.note_shortage(&pool);
    }

    fn collect(&self, pool: &mut Pool) {
        for stash in self.stashes.iter() {
            pool.open += std::mem::take(&mut *stash.lock());
        }
        self.refill(pool);
    }

    fn refill(&self, pool: &mut Pool) {
        let missing = (self.reserved - pool.reserve).min(pool.open);
        pool.reserve += missing;
        pool.open -= missing;
        self.note_shortage(pool);
    }

    fn note_shortage(&self, pool: &Pool) {
        let short = pool.reserve < self.reserved;
        if self.short.load(Ordering::Relaxed) != short {
            self.short.store(short, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        let pool = self.pool.lock();
        pool.open + pool.reserve + self.stashes.iter().map(|stash| *stash.lock()).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_for_the_privileged_and_filled_first() {
        let space = Space::new(100, 10);
        assert_eq!(space.draw(200, Privilege::Ordinary), 90);
        assert_eq!(space.draw(1, Privilege::Ordinary), 0);
        assert_eq!(space.draw(4, Privilege::Root), 4);
        space.put_back(3);
        assert_eq!(space.draw(1, Privilege::Ordinary), 0);
        space.put_back(2);
        assert_eq!(space.draw(5, Privilege::Ordinary), 1);
        assert_eq!(space.draw(50, Privilege::Root), 10);
        assert_eq!(space.total(), 0);
    }

    #[test]
    fn what_other_lanes_drew_ahead_is_there_for_the_last_who_asks() {
        let space = Space::new(1_000_000, 0);
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| assert_eq!(space.draw(1, Privilege::Ordinary), 1));
            }
        });
        assert_eq!(space.draw(u32::MAX, Privilege::Ordinary), 1_000_000 - 8);
    }

    #[test]
    fn nothing_is_made_or_lost_between_threads() {
        let space = Space::new(10_000, 100);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for i in 0..2000 {
                        let drawn = space.draw(1 + i * 37 % 5000, Privilege::Root);
                        space.put_back(drawn);
                    }
                });
            }
        });
        assert_eq!(space.total(), 10_000);
        space.lose(9_950);
        assert_eq!(space.draw(100, Privilege::Ordinary), 0);
        assert_eq!(space.draw(100, Privilege::Root), 50);
    }
}
