//! Credits: the blocks that handles may still add to the running transaction.
//!
//! A pool holds what the transaction can take. Lanes draw from it into stashes of their own, so
//! that joining usually touches the lane's line only; what a stash holds belongs to one
//! transaction and means nothing in the next. Whoever finds pool and stashes short leaves the
//! transaction, has it committed, and waits in a queue, first come first served: an operation
//! that needs many credits is not overtaken for ever by those that need few.

use crate::limits::Limits;
use crate::{Error, Tid};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Condvar, Lane, Mutex, Padded, PerLane, Rank};
use std::collections::VecDeque;

pub(crate) struct Credits {
    limits: Limits,
    /// [rank LaneList]
    stashes: PerLane<Mutex<Stash>>,
    /// [rank Journal]
    pool: Mutex<Pool>,
    /// The pool has more, or the queue moved.
    moved: Condvar,
    /// How many are in the queue. Written under the pool's lock before the first look into the
    /// stashes, and read under a stash's lock: so whoever gives back sees a waiter that has looked
    /// into his stash already.
    waiting: Padded<AtomicU64>,
}

/// What a lane has drawn and nobody uses, in grains.
struct Stash {
    tid: Tid,
    grains: u64,
}

struct Pool {
    /// Grains that nobody has drawn.
    left: u64,
    /// Counts every time that `left` grew or the queue moved.
    changes: u64,
    queue: VecDeque<u64>,
    next_ticket: u64,
}

/// Not enough now; try again once the pool changed from this state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Short {
    changes: u64,
}

/// A place in the queue; dropping it steps out.
pub(crate) struct Ticket<'a> {
    credits: &'a Credits,
    number: u64,
}

impl Credits {
    pub(crate) fn new(limits: Limits, tid: Tid) -> Credits {
        let left = u64::from(limits.capacity) * limits.grains;
        let pool = Pool { left, changes: 0, queue: VecDeque::new(), next_ticket: 0 };
        Credits {
            limits,
            stashes: PerLane::new(|_| Mutex::new(Rank::LaneList, Stash { tid, grains: 0 })),
            pool: Mutex::new(Rank::Journal, pool),
            moved: Condvar::new(),
            waiting: Padded(AtomicU64::new(0)),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// `credits` blocks in grains.
    pub(crate) fn grains(&self, credits: u32) -> Result<u64, Error> {
        if credits > self.limits.capacity {
            return Err(Error::TooBig { credits, max: self.limits.capacity });
        }
        Ok(u64::from(credits) * self.limits.grains)
    }

    /// Draws for a member of `tid` on `lane`.
    pub(crate) fn draw(
        &self,
        tid: Tid,
        lane: Lane,
        grains: u64,
        ticket: Option<&Ticket<'_>>,
    ) -> Result<(), Short> {
        {
            let mut stash = self.stashes.of(lane).lock();
            stash.move_to(tid);
            if stash.grains >= grains {
                stash.grains -= grains;
                return Ok(());
            }
        }
        self.refill(tid, lane, grains, ticket)
    }

    /// Draws from the pool, and fills the lane's stash with that: once for many handles.
    #[cold]
    fn refill(
        &self,
        tid: Tid,
        lane: Lane,
        grains: u64,
        ticket: Option<&Ticket<'_>>,
    ) -> Result<(), Short> {
        let mut pool = self.pool.lock();
        let first = pool.queue.front().copied();
        if first != ticket.map(|t| t.number) {
            return Err(Short { changes: pool.changes });
        }
        let keep = u64::from(self.limits.keep) * self.limits.grains;
        if pool.left < grains {
            self.collect(tid, &mut pool);
        }
        let rest = pool.left.checked_sub(grains).ok_or(Short { changes: pool.changes })?;
        let extra = keep.min(rest);
        pool.left = rest - extra;
        let mut stash = self.stashes.of(lane).lock();
        stash.move_to(tid);
        stash.grains += extra;
        Ok(())
    }

    /// Takes back what lanes have drawn for `tid` and do not use.
    fn collect(&self, tid: Tid, pool: &mut Pool) {
        for stash in self.stashes.iter() {
            let mut stash = stash.lock();
            stash.move_to(tid);
            pool.left += std::mem::take(&mut stash.grains);
        }
    }

    /// A member of `tid` leaves and did not use `grains`.
    pub(crate) fn give_back(&self, tid: Tid, lane: Lane, grains: u64) {
        if grains == 0 {
            return;
        }
        let keep = u64::from(self.limits.keep) * self.limits.grains;
        let excess = {
            let mut stash = self.stashes.of(lane).lock();
            stash.move_to(tid);
            stash.grains += grains;
            // If somebody waits, a stash is of no use: nothing may be left to commit, and then
            // only what comes back to the pool wakes him.
            let keep = if self.waiting.load(Ordering::Relaxed) > 0 { 0 } else { keep };
            if stash.grains <= 2 * keep {
                return;
            }
            let excess = stash.grains - keep;
            stash.grains = keep;
            excess
        };
        let mut pool = self.pool.lock();
        pool.left += excess;
        self.change(&mut pool);
    }

    /// A new transaction opens, with all its credits. Stashes of the one before are void.
    ///
    /// # Locking
    /// Called while nobody is a member.
    pub(crate) fn open(&self) {
        let mut pool = self.pool.lock();
        pool.left = u64::from(self.limits.capacity) * self.limits.grains;
        self.change(&mut pool);
    }

    /// Wakes everybody who waits, to look at the journal's state again.
    pub(crate) fn wake_all(&self) {
        let mut pool = self.pool.lock();
        self.change(&mut pool);
    }

    fn change(&self, pool: &mut Pool) {
        pool.changes += 1;
        if !pool.queue.is_empty() {
            self.moved.notify_all();
        }
    }

    /// Takes a place at the end of the queue.
    pub(crate) fn queue(&self) -> Ticket<'_> {
        let mut pool = self.pool.lock();
        let number = pool.next_ticket;
        pool.next_ticket += 1;
        pool.queue.push_back(number);
        self.waiting.store(pool.queue.len() as u64, Ordering::Relaxed);
        Ticket { credits: self, number }
    }
}

impl Stash {
    fn move_to(&mut self, tid: Tid) {
        if self.tid != tid {
            *self = Stash { tid, grains: 0 };
        }
    }
}

impl Ticket<'_> {
    /// Waits until this place is the first and the pool is not as `short` saw it, or `over` says
    /// that there is nothing to wait for.
    pub(crate) fn wait(&self, short: Option<Short>, over: impl Fn() -> bool) {
        let mut pool = self.credits.pool.lock();
        let seen = short.map(|s| s.changes);
        while !over() && (pool.queue.front() != Some(&self.number) || seen == Some(pool.changes)) {
            self.credits.moved.wait(&mut pool);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut pool = self.credits.pool.lock();
        pool.queue.retain(|number| *number != self.number);
        self.credits.waiting.store(pool.queue.len() as u64, Ordering::Relaxed);
        self.credits.change(&mut pool);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn credits(capacity: u32, keep: u32) -> Credits {
        Credits::new(Limits { grains: 10, capacity, keep }, Tid(1))
    }

    fn lanes() -> (Lane, Lane) {
        let mut all = Lane::all();
        (all.next().unwrap(), all.next().unwrap())
    }

    #[test]
    fn what_other_lanes_do_not_use_is_taken_back() {
        let ((a, b), credits) = (lanes(), credits(100, 40));
        credits.draw(Tid(1), a, 100, None).unwrap();
        credits.draw(Tid(1), b, 800, None).unwrap();
        assert!(credits.draw(Tid(1), b, 200, None).is_err());
        credits.give_back(Tid(1), a, 100);
        credits.draw(Tid(1), b, 200, None).unwrap();
        assert!(credits.draw(Tid(1), a, 1, None).is_err());
        credits.open();
        credits.draw(Tid(2), a, 1000, None).unwrap();
        assert!(credits.draw(Tid(2), b, 1, None).is_err());
    }

    #[test]
    fn a_stash_of_the_last_transaction_is_void_in_the_next() {
        let ((a, _), credits) = (lanes(), credits(100, 100));
        credits.draw(Tid(1), a, 10, None).unwrap();
        credits.open();
        credits.draw(Tid(2), a, 1000, None).unwrap();
        assert!(credits.draw(Tid(2), a, 1, None).is_err(), "990 grains came from nowhere");
    }

    #[test]
    fn nobody_overtakes_the_first_in_the_queue() {
        let ((a, b), credits) = (lanes(), credits(100, 0));
        credits.draw(Tid(1), a, 900, None).unwrap();
        let big = credits.queue();
        assert!(credits.draw(Tid(1), a, 500, Some(&big)).is_err());
        assert!(credits.draw(Tid(1), b, 10, None).is_err(), "it has to queue up");
        credits.open();
        credits.draw(Tid(2), a, 500, Some(&big)).unwrap();
        drop(big);
        credits.draw(Tid(2), b, 500, None).unwrap();
    }

    #[test]
    fn what_comes_back_unused_reaches_a_waiter_and_not_a_stash() {
        let ((a, b), credits) = (lanes(), credits(100, 40));
        credits.draw(Tid(1), a, 300, None).unwrap();
        let big = credits.queue();
        let short = credits.draw(Tid(1), b, 1000, Some(&big)).unwrap_err();
        credits.give_back(Tid(1), a, 300);
        big.wait(Some(short), || false);
        credits.draw(Tid(1), b, 1000, Some(&big)).unwrap();
    }

    #[test]
    fn more_than_a_transaction_can_have_is_refused() {
        let credits = credits(100, 0);
        assert_eq!(credits.grains(100).unwrap(), 1000);
        assert!(matches!(credits.grains(101), Err(Error::TooBig { credits: 101, max: 100 })));
    }
}
