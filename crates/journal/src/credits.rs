//! Credits: the number of blocks that handles may still add to the running transaction, counted in
//! grains ([`Limits`]).
//!
//! A pool holds the remaining credits of the transaction. Lanes draw credits from the pool into
//! their stashes, so that joining usually touches only the cache line of the thread's lane. A stash
//! is valid for only one transaction. No thread takes credits from the stash of another lane: that
//! would move the lines of all lanes, again and again at the end of each transaction. A thread that
//! finds too few credits in its stash and the pool leaves the transaction, requests its commit, and
//! waits in a queue. So a transaction closes with up to [`Limits::stashes`] credits unused (a few
//! more while new lanes are given).
//!
//! No thread draws credits that an earlier thread in the queue needs. So an operation that needs
//! many credits is not overtaken for ever by operations that need few. But if the pool has enough
//! for all threads in the queue, no thread waits for its turn. If the queue released only one
//! thread at a time, it would never become empty, because released threads soon join again.

use crate::error::Error;
use crate::limits::Limits;
use crate::tid::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Condvar, Lane, Mutex, Padded, PerLane, Rank};
use std::collections::VecDeque;

pub(crate) struct Credits {
    pub(crate) limits: Limits,
    /// [rank LaneList]
    stashes: PerLane<Mutex<Stash>>,
    /// The pool is on cache lines of its own, because each join reads the other fields. Lock rank:
    /// [`Rank::Journal`].
    pool: Padded<Mutex<Pool>>,
    /// The length of the queue, written under the pool's lock. A thread that gives credits back and
    /// misses a new waiter keeps them in its stash; the waiter then waits for the commit.
    waiting: Padded<AtomicU64>,
}

/// Grains that a lane has drawn, and that no handle uses.
struct Stash {
    tid: Tid,
    grains: u64,
}

struct Pool {
    /// Grains that no lane has drawn.
    left: u64,
    queue: VecDeque<Request>,
    next_ticket: u64,
    /// The last transaction whose credits were too few for the queue. This transaction must be
    /// closed even if its handles have changed nothing.
    short_in: Option<Tid>,
}

/// A thread's request in the queue.
struct Request {
    number: u64,
    /// The number of grains that the thread waits for.
    grains: u64,
    /// Set when there may be enough grains for the request; cleared when the thread checks.
    called: bool,
    call: Arc<Condvar>,
}

/// The error that there are too few grains at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Short;

/// A thread's position in the queue; dropping it removes the thread from the queue.
pub(crate) struct Ticket<'a> {
    credits: &'a Credits,
    number: u64,
    call: Arc<Condvar>,
}

impl Credits {
    pub(crate) fn new(limits: Limits, tid: Tid) -> Credits {
        let left = u64::from(limits.capacity) * limits.grains;
        let pool = Pool { left, queue: VecDeque::new(), next_ticket: 0, short_in: None };
        Credits {
            limits,
            stashes: PerLane::new(|_| Mutex::new(Rank::LaneList, Stash { tid, grains: 0 })),
            pool: Padded(Mutex::new(Rank::Journal, pool)),
            waiting: Padded(AtomicU64::new(0)),
        }
    }

    /// Converts `credits` blocks to grains.
    pub(crate) fn grains(&self, credits: u32) -> Result<u64, Error> {
        if credits > self.limits.capacity {
            return Err(Error::TooBig { credits, max: self.limits.capacity });
        }
        Ok(u64::from(credits) * self.limits.grains)
    }

    /// Draws grains for a handle of `tid` on `lane`.
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

    /// Draws from the pool and fills the lane's stash, so that only one in many handles draws from
    /// the pool.
    #[cold]
    fn refill(
        &self,
        tid: Tid,
        lane: Lane,
        grains: u64,
        ticket: Option<&Ticket<'_>>,
    ) -> Result<(), Short> {
        let mut pool = self.pool.0.lock();
        let ahead = pool.ahead(ticket.map(|t| t.number));
        if pool.left < grains.saturating_add(ahead) {
            if ticket.is_some() {
                pool.short_in = Some(tid);
            }
            return Err(Short);
        }
        pool.left -= grains;
        let keep = if pool.queue.is_empty() { self.keep() } else { 0 };
        let mut stash = self.stashes.of(lane).lock();
        stash.move_to(tid);
        let extra = keep.saturating_sub(stash.grains).min(pool.left);
        pool.left -= extra;
        stash.grains += extra;
        Ok(())
    }

    /// Takes back the unused `grains` of a handle that leaves `tid`.
    pub(crate) fn give_back(&self, tid: Tid, lane: Lane, grains: u64) {
        if grains == 0 {
            return;
        }
        let excess = {
            let mut stash = self.stashes.of(lane).lock();
            stash.move_to(tid);
            stash.grains += grains;
            // If a thread waits, the stash keeps no grains: all of them go to the pool, so that the
            // waiting thread may get them before the transaction closes.
            let keep = if self.waiting.load(Ordering::Relaxed) > 0 { 0 } else { self.keep() };
            if stash.grains <= 2 * keep {
                return;
            }
            let excess = stash.grains - keep;
            stash.grains = keep;
            excess
        };
        let mut pool = self.pool.0.lock();
        pool.left += excess;
        pool.call();
    }

    /// Returns the number of grains with which a lane fills its stash, half of what the stash may
    /// have. Each lane in use has an equal share.
    fn keep(&self) -> u64 {
        u64::from(self.limits.stashes) * self.limits.grains / (2 * Lane::given().len() as u64)
    }

    /// Opens a new transaction with all its credits. The stashes of the previous transaction become
    /// void.
    ///
    /// # Locking
    /// Called while no thread has a handle.
    pub(crate) fn open(&self) {
        let mut pool = self.pool.0.lock();
        pool.left = u64::from(self.limits.capacity) * self.limits.grains;
        pool.call();
    }

    /// Returns whether the queue waits for `tid` to close.
    pub(crate) fn ran_short_in(&self, tid: Tid) -> bool {
        self.pool.0.lock().short_in == Some(tid)
    }

    /// Wakes all waiters, which then check the journal's state again.
    pub(crate) fn wake_all(&self) {
        self.pool.0.lock().queue.iter_mut().for_each(Request::call);
    }

    /// Queues for `grains`.
    pub(crate) fn queue(&self, grains: u64) -> Ticket<'_> {
        let call = Arc::new(Condvar::new());
        let mut pool = self.pool.0.lock();
        let number = pool.next_ticket;
        pool.next_ticket += 1;
        let request = Request { number, grains, called: false, call: Arc::clone(&call) };
        pool.queue.push_back(request);
        pool.call();
        self.waiting.store(pool.queue.len() as u64, Ordering::Relaxed);
        Ticket { credits: self, number, call }
    }
}

impl Pool {
    /// Returns how many grains the threads before `ticket` in the queue wait for. Without a ticket,
    /// returns how many grains all threads in the queue wait for.
    fn ahead(&self, ticket: Option<u64>) -> u64 {
        let before = self.queue.iter().take_while(|request| Some(request.number) != ticket);
        before.map(|request| request.grains).sum()
    }

    /// Wakes every waiter for which there are enough grains in addition to those for earlier
    /// waiters. Wakes the first waiter in any case, because there may be something to commit.
    fn call(&mut self) {
        let mut wanted = 0u64;
        for (position, request) in self.queue.iter_mut().enumerate() {
            wanted = wanted.saturating_add(request.grains);
            if position > 0 && wanted > self.left {
                break;
            }
            request.call();
        }
    }
}

impl Request {
    fn call(&mut self) {
        if !self.called {
            self.called = true;
            self.call.notify_one();
        }
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
    /// Waits until there may be enough grains for this request, or until `over` returns true. The
    /// first call returns at once if the request is first in the queue, or if the pool has enough
    /// grains already.
    pub(crate) fn wait(&self, over: impl Fn() -> bool) {
        let mut pool = self.credits.pool.lock();
        while !over() && !self.take_call(&mut pool) {
            self.call.wait(&mut pool);
        }
    }

    fn take_call(&self, pool: &mut Pool) -> bool {
        let request = pool.queue.iter_mut().find(|request| request.number == self.number);
        request.is_none_or(|request| std::mem::take(&mut request.called))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut pool = self.credits.pool.lock();
        pool.queue.retain(|request| request.number != self.number);
        self.credits.waiting.store(pool.queue.len() as u64, Ordering::Relaxed);
        // This thread took its own grains, so the pool has no more grains for the other waiters
        // than before. Only the waiter that is now first in the queue is woken: it requests the
        // next commit.
        pool.queue.front_mut().map(Request::call);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
