//! Locks on rows. A lock covers a range of offsets within the chunks of a row, and is shared or
//! exclusive. `rows/strip.rs` cuts requests into rows and strips; `rows/plan.rs` plans their
//! writes.
//!
//! A writer locks the parity blocks that it will change in one row. So two small writes to one row
//! run in parallel unless they change the same parity block. Adjacent rows are in different shards
//! of the table; each shard has cache lines of its own.
//!
//! *Hand-off*: a thread that releases a range goes through the waiters in the order of arrival. It
//! grants each waiter its range, and wakes it, if the range conflicts with no holder and no earlier
//! waiter. So no thread is woken in vain or overtaken by a conflicting thread. Every waiter that
//! can run is woken, since the holders that blocked it are in the same shard, and each release in a
//! shard checks all waiters of that shard.
//!
//! *Gathering*: a thread that waits to write lends its bytes ([`Request`]). The thread that holds
//! the range can write them together with its own, and then the waiting thread has nothing left to
//! do ([`RowHold::take`]). A write of several rows *offers* its last part in the same way while it
//! writes the other parts. A write is taken only if its range lies in the held range. The taken
//! write may overtake waiting threads whose ranges conflict with its own range. These threads lose
//! nothing: their ranges overlap the held range too, so they have to wait for the holder anyway.

pub(crate) mod plan;
pub(crate) mod strip;

use crate::rows::strip::RowPart;
use lanefs_device::WriteKind;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Borrowed, Condvar, Loan, Mutex, Padded, Rank};
use std::collections::VecDeque;

/// The number of shards: several times the number of rows that threads are likely to hold at once.
#[cfg(not(any(loom, shuttle)))]
const SHARDS: usize = 1024;
#[cfg(any(loom, shuttle))]
const SHARDS: usize = 2;

/// The number of holds that are kept in the shard itself. A separate allocation could share its
/// cache lines with other data.
const INLINE: usize = 4;

/// The accesses that a hold excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Writers only.
    Shared,
    /// Readers and writers.
    Exclusive,
}

/// A range of a row's offsets, and the mode in which it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) row: u64,
    /// Offset of the first byte within the chunks.
    pub(crate) from: u64,
    /// Offset after the last byte.
    pub(crate) to: u64,
    pub(crate) mode: Mode,
}

impl Span {
    fn conflicts(&self, other: &Span) -> bool {
        self.row == other.row
            && self.from < other.to
            && other.from < self.to
            && (self.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
    }

    fn contains(&self, other: &Span) -> bool {
        self.row == other.row && self.from <= other.from && other.to <= self.to
    }
}

/// The table of rows in use.
#[derive(Debug)]
pub(crate) struct RowLocks {
    shards: Box<[Padded<Mutex<Shard>>]>,
}

#[derive(Debug, Default)]
struct Shard {
    /// Spans that are held. If there are more than [`INLINE`], the rest is in `more`.
    held: [Option<Span>; INLINE],
    more: Vec<Span>,
    waiting: VecDeque<Arc<Waiter>>,
    /// Offered writes, whose threads do not wait for the range yet.
    offers: Vec<Arc<Waiter>>,
}

/// A part of a row to be written, with its bytes.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) part: RowPart,
    pub(crate) how: WriteKind,
    pub(crate) loan: Arc<Loan>,
}

/// A thread that waits, or will wait, for a range of a row.
#[derive(Debug)]
pub(crate) struct Waiter {
    span: Span,
    /// The write that the thread wants to do, if another thread may do it instead.
    request: Option<Request>,
    outcome: Mutex<Option<Outcome>>,
    wake: Condvar,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The thread holds the range.
    Granted,
    /// Another thread has written the request.
    Written,
    /// Another thread tried to write the request together with its own, and failed. The thread must
    /// write the request alone, because the error possibly concerns another write.
    Apart,
}

impl Waiter {
    pub(crate) fn new(span: Span, request: Option<Request>) -> Arc<Waiter> {
        let outcome = Mutex::new(Rank::Bucket, None);
        Arc::new(Waiter { span, request, outcome, wake: Condvar::new() })
    }

    fn end(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.wake.notify_one();
    }

    pub(crate) fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = *outcome {
                return outcome;
            }
            self.wake.wait(&mut outcome);
        }
    }
}

/// A held range, released when dropped.
#[derive(Debug)]
pub(crate) struct RowHold<'a> {
    locks: &'a RowLocks,
    pub(crate) span: Span,
    /// Whether the thread had to wait for the range.
    pub(crate) waited: bool,
    /// Whether other threads possibly wait for ranges of rows in the shard, or offer writes there.
    pub(crate) contended: bool,
}

/// A write that was taken from the thread that requested it.
#[derive(Debug)]
pub(crate) struct Taken {
    waiter: Arc<Waiter>,
    bytes: Option<Borrowed>,
    pub(crate) part: RowPart,
    outcome: Outcome,
}

impl Taken {
    /// Returns the bytes of the whole request to which the part belongs.
    pub(crate) fn slices(&self) -> &[&[u8]] {
        self.bytes.as_ref().map_or(&[], Borrowed::slices)
    }

    /// Tells the write's thread that the part is written.
    pub(crate) fn written(mut self) {
        self.outcome = Outcome::Written;
    }
}

impl Drop for Taken {
    /// Tells the write's thread the outcome. If the part was not written, that thread writes it
    /// alone.
    fn drop(&mut self) {
        self.bytes = None;
        self.waiter.end(self.outcome);
    }
}

impl RowLocks {
    pub(crate) fn new() -> RowLocks {
        let shard = |_| Padded(Mutex::new(Rank::Bucket, Shard::default()));
        RowLocks { shards: (0..SHARDS).map(shard).collect() }
    }

    /// Waits for the range, then holds it.
    pub(crate) fn lock(&self, span: Span) -> RowHold<'_> {
        if let Some(hold) = self.try_lock(span) {
            return hold;
        }
        let waiter = Waiter::new(span, None);
        self.queue(&waiter).unwrap_or_else(|| {
            waiter.wait();
            self.granted(span)
        })
    }

    /// Holds the range if no thread holds or waits for a range that conflicts with it.
    pub(crate) fn try_lock(&self, span: Span) -> Option<RowHold<'_>> {
        let mut shard = self.shard(span.row).lock();
        let contended = !shard.waiting.is_empty() || !shard.offers.is_empty();
        let free = shard.hold_if_free(span);
        free.then(|| RowHold { locks: self, span, waited: false, contended })
    }

    /// Holds the waiter's range if it is free now; otherwise adds the waiter to the queue.
    pub(crate) fn queue(&self, waiter: &Arc<Waiter>) -> Option<RowHold<'_>> {
        let span = waiter.span;
        let mut shard = self.shard(span.row).lock();
        if shard.hold_if_free(span) {
            return Some(RowHold { locks: self, span, waited: false, contended: true });
        }
        shard.waiting.push_back(waiter.clone());
        None
    }

    /// Returns the hold of a waiter whose wait ended with [`Outcome::Granted`].
    pub(crate) fn granted(&self, span: Span) -> RowHold<'_> {
        RowHold { locks: self, span, waited: true, contended: true }
    }

    /// Offers a write to the threads that hold its range, before the write's own thread waits for
    /// the range.
    pub(crate) fn offer(&self, waiter: &Arc<Waiter>) {
        self.shard(waiter.span.row).lock().offers.push(waiter.clone());
    }

    /// Ends an offer. Returns `false` if another thread has taken the write.
    pub(crate) fn withdraw(&self, waiter: &Arc<Waiter>) -> bool {
        let mut shard = self.shard(waiter.span.row).lock();
        let at = shard.offers.iter().position(|offer| Arc::ptr_eq(offer, waiter));
        at.map(|at| shard.offers.swap_remove(at)).is_some()
    }

    /// Waits until every thread that held a part of the row at the time of the call has released
    /// it.
    pub(crate) fn pass_through(&self, row: u64) {
        drop(self.lock(Span { row, from: 0, to: u64::MAX, mode: Mode::Exclusive }));
    }

    fn shard(&self, row: u64) -> &Mutex<Shard> {
        &self.shards[(row % SHARDS as u64) as usize]
    }

    fn release(&self, span: Span) {
        let granted = {
            let mut shard = self.shard(span.row).lock();
            shard.let_go(span);
            shard.grant()
        };
        granted.iter().for_each(|waiter| waiter.end(Outcome::Granted));
    }
}

impl RowHold<'_> {
    /// Takes waiting or offered writes of this durability whose ranges lie in the held range.
    /// `choose` selects among them, and returns the indexes of the selected parts.
    ///
    /// # Locking
    /// The range is held exclusively, so no waiting write is granted its range meanwhile.
    pub(crate) fn take(
        &self,
        how: WriteKind,
        choose: impl FnOnce(&[RowPart]) -> Vec<usize>,
    ) -> Vec<Taken> {
        let (waiters, parts) = self.locks.shard(self.span.row).lock().requests(&self.span, how);
        if parts.is_empty() {
            return Vec::new();
        }
        let chosen: Vec<_> = choose(&parts).iter().map(|at| waiters[*at].clone()).collect();
        if !self.locks.shard(self.span.row).lock().remove_all(&chosen) {
            return Vec::new();
        }
        let taken: Vec<Taken> = chosen.into_iter().filter_map(Taken::from_queue).collect();
        // If a loan is over, the remaining parts may not fit together, so no part is taken. Each
        // thread then writes its own part alone.
        if taken.iter().all(|taken| taken.bytes.is_some()) { taken } else { Vec::new() }
    }
}

impl Taken {
    /// Borrows the bytes of a waiter that was removed from the queue or from the offers. There are
    /// no bytes if the loan is over: the thread that made an offer ends the loan at once if it
    /// fails to write another part of its request.
    fn from_queue(waiter: Arc<Waiter>) -> Option<Taken> {
        let Request { part, loan, .. } = waiter.request.as_ref()?;
        let (part, bytes) = (*part, Loan::borrow(loan));
        Some(Taken { waiter, bytes, part, outcome: Outcome::Apart })
    }
}

impl Shard {
    /// Returns whether `span` conflicts neither with a holder nor with one of the first `earlier`
    /// waiters.
    fn is_free_for(&self, span: &Span, earlier: usize) -> bool {
        let mut held = self.held.iter().flatten().chain(&self.more);
        !held.any(|h| h.conflicts(span))
            && !self.waiting.iter().take(earlier).any(|w| w.span.conflicts(span))
    }

    /// Holds the range if it conflicts with no holder and no waiter; returns whether it is now
    /// held.
    fn hold_if_free(&mut self, span: Span) -> bool {
        let free = self.is_free_for(&span, self.waiting.len());
        if free {
            self.hold(span);
        }
        free
    }

    /// Returns the waiting and the offered writes in `span`, and their parts.
    fn requests(&self, span: &Span, how: WriteKind) -> (Vec<Arc<Waiter>>, Vec<RowPart>) {
        let mut all = (Vec::new(), Vec::new());
        for waiter in self.waiting.iter().chain(&self.offers) {
            if let Some(request) = waiter.request.as_ref().filter(|request| request.how == how)
                && span.contains(&waiter.span)
            {
                all.0.push(waiter.clone());
                all.1.push(request.part);
            }
        }
        all
    }

    /// Removes all `chosen` writes from the queue and the offers. If one was withdrawn, removes
    /// none and returns `false`.
    fn remove_all(&mut self, chosen: &[Arc<Waiter>]) -> bool {
        let is_chosen = |waiter: &Arc<Waiter>| chosen.iter().any(|c| Arc::ptr_eq(c, waiter));
        let found = self.waiting.iter().chain(&self.offers).filter(|w| is_chosen(w)).count();
        if found < chosen.len() {
            return false;
        }
        self.waiting.retain(|waiter| !is_chosen(waiter));
        self.offers.retain(|waiter| !is_chosen(waiter));
        true
    }

    fn hold(&mut self, span: Span) {
        match self.held.iter_mut().find(|h| h.is_none()) {
            Some(free) => *free = Some(span),
            None => self.more.push(span),
        }
    }

    /// Releases a hold. Only shared holds can be equal, and it does not matter which of several
    /// equal holds is released.
    fn let_go(&mut self, span: Span) {
        if let Some(held) = self.held.iter_mut().find(|h| **h == Some(span)) {
            *held = None;
        } else if let Some(at) = self.more.iter().position(|h| *h == span) {
            self.more.swap_remove(at);
        } else {
            unreachable!("only a held range is released");
        }
    }

    /// Moves all waiters that can run from the queue to the holders.
    fn grant(&mut self) -> Vec<Arc<Waiter>> {
        let (mut granted, mut at) = (Vec::new(), 0);
        while let Some(waiter) = self.waiting.get(at) {
            let span = waiter.span;
            if self.is_free_for(&span, at) {
                self.hold(span);
                granted.extend(self.waiting.remove(at));
            } else {
                at += 1;
            }
        }
        granted
    }
}

impl Drop for RowHold<'_> {
    fn drop(&mut self) {
        self.locks.release(self.span);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
