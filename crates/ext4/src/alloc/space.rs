//! Counts the blocks that may still be claimed. With `bigalloc` a block here is a cluster.
//!
//! A claim draws its blocks from this count before it searches. So every search that starts can
//! succeed, and the reserved blocks stay reserved. Each lane keeps a stash of blocks drawn in
//! advance. As soon as reserved blocks are drawn, the stashes stay empty, and the numbers are
//! exact.
//!
//! # No refusal while there is room
//!
//! A claim may draw more blocks than it uses, because the search returns a single run. So a claim
//! that can draw no blocks is refused only after it has waited to be [`Alone`]: earlier claims have
//! finished, new claims wait, and unused blocks have been returned. Then the count is exact.

use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::{Condvar, Lane, LaneCounters, MAX_LANES, Mutex, MutexGuard, PerLane, Rank};

/// The largest number of blocks that a lane draws in advance: enough for thousands of small files.
const AHEAD: u64 = 4096;

/// The privilege of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// An ordinary caller, which may not use the reserved blocks.
    Ordinary,
    /// Root, which may use the reserved blocks.
    Root,
}

/// The blocks that may still be claimed.
///
/// *Invariant*: while no call is running, the pool, the stashes and the drawn blocks add up to the
/// number of blocks that are not taken, summed over all groups.
#[derive(Debug)]
pub(crate) struct Space {
    /// [rank LaneList]
    stashes: PerLane<Mutex<Stash>>,
    /// [rank Guard, and no group's guard is held with it]
    pool: Mutex<Pool>,
    /// Signalled when a claim finishes. Threads wait for it with the lock of `pool`.
    ended: Condvar,
    /// Set while stashes must not be filled: see [`Pool::is_short`]. Written under the pool's lock
    /// and read under a stash's lock. So a stash that is emptied after the flag was set stays
    /// empty.
    short: AtomicBool,
    reserved: u64,
}

#[derive(Debug, Default)]
struct Stash {
    open: u64,
    /// Blocks drawn by claims that are under way.
    drawn: u64,
}

#[derive(Debug)]
struct Pool {
    open: u64,
    /// Blocks for [`Privilege::Root`] only, at most `reserved`. Blocks that come back to the pool
    /// fill the reserve first.
    reserve: u64,
    /// The number of blocks that [`Space::lose`] could not subtract, since claims had drawn them.
    /// It is subtracted from blocks that are given back later.
    owed: u64,
    /// Set while a claim runs alone, or waits until no other claim is under way.
    alone: bool,
}

/// The number of blocks that a claim draws.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    /// The number of blocks wanted; fewer are drawn only if no more are left.
    pub want: u32,
    /// The number of further blocks. They are drawn only if there are enough blocks in the lane's
    /// stash, or in a pool that [is not short](Pool::is_short).
    pub ahead: u32,
    pub privilege: Privilege,
}

/// Blocks drawn for a claim. The claim is under way until this value is dropped.
#[derive(Debug)]
pub(crate) struct Drawn<'s> {
    space: &'s Space,
    lane: Lane,
    blocks: u32,
    used: u32,
}

/// While this guard exists, only its owner has claims in progress.
#[derive(Debug)]
pub(crate) struct Alone<'s> {
    space: &'s Space,
}

impl Space {
    /// Creates the space with `free` blocks, of which the last `reserved` are for privileged
    /// callers.
    pub(crate) fn new(free: u64, reserved: u64) -> Space {
        let reserve = free.min(reserved);
        let pool = Pool { open: free - reserve, reserve, owed: 0, alone: false };
        Space {
            stashes: PerLane::new(|_| Mutex::new(Rank::LaneList, Stash::default())),
            pool: Mutex::new(Rank::Guard, pool),
            ended: Condvar::new(),
            short: AtomicBool::new(reserve < reserved),
            reserved,
        }
    }

    /// Draws blocks for a claim. Returns `None` if it can draw no block: each block is taken,
    /// reserved for privileged callers, or drawn by another claim that is under way. Waits while
    /// another claim runs alone. A caller whose own claim runs alone passes `alone`.
    pub(crate) fn draw(&self, draw: &Draw, alone: Option<&Alone<'_>>) -> Option<Drawn<'_>> {
        let lane = Lane::current();
        let (want, all) = (u64::from(draw.want), u64::from(draw.want) + u64::from(draw.ahead));
        {
            let mut stash = self.stashes.of(lane).lock();
            if stash.open >= all {
                stash.open -= all;
                return Some(self.drawn(lane, &mut stash, all));
            }
        }
        let mut pool = self.pool.lock();
        while alone.is_none() && pool.alone {
            self.ended.wait(&mut pool);
        }
        if pool.open < all {
            self.collect(&mut pool);
        }
        let enough = pool.open >= all && !pool.is_short(self.reserved);
        let drawn = pool.take(if enough { all } else { want }, draw.privilege);
        self.note_shortage(&pool);
        if drawn == 0 {
            return None;
        }
        let ahead = match pool.is_short(self.reserved) {
            true => 0,
            false => (pool.open / (4 * MAX_LANES as u64)).min(AHEAD),
        };
        pool.open -= ahead;
        let mut stash = self.stashes.of(lane).lock();
        stash.open += ahead;
        Some(self.drawn(lane, &mut stash, drawn))
    }

    fn drawn(&self, lane: Lane, stash: &mut Stash, blocks: u64) -> Drawn<'_> {
        stash.drawn += blocks;
        Drawn { space: self, lane, blocks: blocks as u32, used: 0 }
    }

    /// Waits until no claim is under way; new claims wait until the result is dropped. The caller
    /// must have no claim under way.
    pub(crate) fn alone(&self) -> Alone<'_> {
        let mut pool = self.pool.lock();
        while pool.alone {
            self.ended.wait(&mut pool);
        }
        pool.alone = true;
        self.note_shortage(&pool);
        while self.collect(&mut pool) > 0 {
            self.ended.wait(&mut pool);
        }
        Alone { space: self }
    }

    /// Adds blocks that became free.
    pub(crate) fn put_back(&self, blocks: u32) {
        if blocks > 0 {
            self.fill(Lane::current(), u64::from(blocks), 0);
        }
    }

    /// Adds `blocks` to the stash of `lane`, or to the pool if they are needed there. If this ends
    /// a claim, `ended` is the number of blocks that the claim had drawn.
    fn fill(&self, lane: Lane, blocks: u64, ended: u64) {
        let mut stash = self.stashes.of(lane).lock();
        // Both counts change under one lock, so that `collect` sees each block either as drawn or
        // as open.
        stash.open += blocks;
        stash.drawn -= ended;
        let short = self.short.load(Ordering::Relaxed);
        if !short && stash.open <= 2 * AHEAD {
            return;
        }
        drop(stash);
        let mut pool = self.pool.lock();
        {
            let mut stash = self.stashes.of(lane).lock();
            let kept = if short { 0 } else { AHEAD.min(stash.open) };
            pool.open += stash.open - kept;
            stash.open = kept;
        }
        self.refill(&mut pool);
        self.signal_end(pool);
    }

    /// Subtracts `blocks` that were counted as free but cannot be allocated, because their group is
    /// damaged.
    pub(crate) fn lose(&self, blocks: u32) {
        let mut pool = self.pool.lock();
        self.collect(&mut pool);
        let lost = u64::from(blocks);
        let from_open = lost.min(pool.open);
        let from_reserve = (lost - from_open).min(pool.reserve);
        pool.open -= from_open;
        pool.reserve -= from_reserve;
        pool.owed += lost - from_open - from_reserve;
        self.note_shortage(&pool);
    }

    /// Moves the stashes into the pool. Returns the number of blocks that unfinished claims have
    /// drawn.
    fn collect(&self, pool: &mut Pool) -> u64 {
        let mut drawn = 0;
        for stash in self.stashes.iter() {
            let mut stash = stash.lock();
            pool.open += std::mem::take(&mut stash.open);
            drawn += stash.drawn;
        }
        self.refill(pool);
        drawn
    }

    fn refill(&self, pool: &mut Pool) {
        let paid = pool.owed.min(pool.open);
        pool.owed -= paid;
        pool.open -= paid;
        let missing = (self.reserved - pool.reserve).min(pool.open);
        pool.reserve += missing;
        pool.open -= missing;
        self.note_shortage(pool);
    }

    fn note_shortage(&self, pool: &Pool) {
        let short = pool.is_short(self.reserved);
        if self.short.load(Ordering::Relaxed) != short {
            self.short.store(short, Ordering::Relaxed);
        }
    }

    /// Signals that a claim finished, so that a claim that waits to be alone may continue.
    fn signal_end(&self, pool: MutexGuard<'_, Pool>) {
        if pool.alone {
            self.ended.notify_all();
        }
    }

    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        let pool = self.pool.lock();
        pool.open + pool.reserve + self.stashes.iter().map(|stash| stash.lock().open).sum::<u64>()
    }
}

impl Pool {
    /// Returns whether blocks that are given back go to the pool instead of a stash. They do if the
    /// reserve is not full, if lost blocks were not subtracted yet, or if a claim runs alone or
    /// waits to run alone.
    fn is_short(&self, reserved: u64) -> bool {
        self.reserve < reserved || self.owed > 0 || self.alone
    }

    /// Takes `want` blocks, or all blocks if there are fewer.
    fn take(&mut self, want: u64, privilege: Privilege) -> u64 {
        let open = want.min(self.open);
        self.open -= open;
        let rest = match privilege {
            Privilege::Root => (want - open).min(self.reserve),
            Privilege::Ordinary => 0,
        };
        self.reserve -= rest;
        open + rest
    }
}

impl Drawn<'_> {
    /// Returns the number of drawn blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Notes that `blocks` of the drawn blocks were claimed.
    pub(crate) fn use_up(&mut self, blocks: u32) {
        debug_assert!(self.used + blocks <= self.blocks);
        self.used += blocks;
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        let unused = u64::from(self.blocks - self.used);
        self.space.fill(self.lane, unused, self.blocks.into());
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let mut pool = self.space.pool.lock();
        pool.alone = false;
        self.space.note_shortage(&pool);
        drop(pool);
        self.space.ended.notify_all();
    }
}

// Counts the work of the allocators, by lane.

/// The events that are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    /// Searches for blocks. Blocks from a window need no search.
    BlockSearches,
    /// Searches for inode numbers.
    InodeSearches,
    /// Groups that these searches looked at.
    GroupsTried,
    /// Groups that these searches skipped because another thread was using them.
    GroupsBusy,
    /// Moves of the place for a directory's new inodes, or for a file's new blocks, to the caller's
    /// own region, because several callers worked in one group.
    Moves,
    /// Preallocation windows that were claimed.
    Windows,
    /// Blocks in all preallocation windows, counted when each window was claimed.
    WindowBlocks,
    /// Claims that got their blocks from a window.
    WindowHits,
}

/// The names of the counts.
const NAMES: [&str; 8] = [
    "alloc.block_searches",
    "alloc.inode_searches",
    "alloc.groups_tried",
    "alloc.groups_busy",
    "alloc.moves",
    "alloc.windows",
    "alloc.window_blocks",
    "alloc.window_hits",
];

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Tally(LaneCounters<{ NAMES.len() }>);

impl Tally {
    /// Adds `n` to a counter of the lane.
    pub(crate) fn add(&self, count: Count, n: u32) {
        self.0.add(count as usize, n.into());
    }

    /// Returns the sums over all lanes, with their names.
    pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
        NAMES.into_iter().zip(self.0.sums().map(|sum| sum.max(0) as u64)).collect()
    }
}

#[cfg(test)]
mod tests;
