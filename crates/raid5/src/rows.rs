//! Locks on rows: a range of offsets within the chunks of a row, shared or exclusive.
//!
//! A writer locks the parity blocks that it will change in one row. So two small writes to one row
//! run in parallel unless they change the same parity block. Adjacent rows are in different shards
//! of the table; each shard has cache lines of its own.
//!
//! *Hand-off*: a thread that releases a range grants ranges to waiters, in the order of arrival, if
//! they do not conflict with any holder or earlier waiter, and wakes them. So no thread is woken in
//! vain or overtaken by a conflicting thread. Every waiter that can run is woken: all holders for
//! which it waits are in its own shard, and each release in that shard checks all waiters.

use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Condvar, Mutex, Padded, Rank};
use std::collections::VecDeque;

/// The number of shards: a multiple of the rows that all threads are likely to hold at once.
#[cfg(not(any(loom, shuttle)))]
const SHARDS: usize = 1024;
#[cfg(any(loom, shuttle))]
const SHARDS: usize = 2;

/// Holds kept in the shard itself, so that an allocation's cache lines are not shared with others.
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
}

/// The table of rows in use.
#[derive(Debug)]
pub(crate) struct RowLocks {
    shards: Box<[Padded<Mutex<Shard>>]>,
}

#[derive(Debug, Default)]
struct Shard {
    /// [the shard's lock] The first holds; the others are in `more`.
    held: [Option<Span>; INLINE],
    more: Vec<Span>,
    waiting: VecDeque<Arc<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    span: Span,
    granted: Mutex<bool>,
    wake: Condvar,
}

/// A held range, released when dropped.
#[derive(Debug)]
pub(crate) struct RowHold<'a> {
    locks: &'a RowLocks,
    span: Span,
    /// Whether the thread had to wait for the range.
    pub(crate) waited: bool,
}

impl RowLocks {
    pub(crate) fn new() -> RowLocks {
        let shard = |_| Padded(Mutex::new(Rank::Bucket, Shard::default()));
        RowLocks { shards: (0..SHARDS).map(shard).collect() }
    }

    /// Waits for the range, and holds it.
    pub(crate) fn lock(&self, span: Span) -> RowHold<'_> {
        let waiter = {
            let mut shard = self.shard(span.row).lock();
            if shard.is_free_for(&span, shard.waiting.len()) {
                shard.hold(span);
                return RowHold { locks: self, span, waited: false };
            }
            let waiter = Arc::new(Waiter {
                span,
                granted: Mutex::new(Rank::Bucket, false),
                wake: Condvar::new(),
            });
            shard.waiting.push_back(waiter.clone());
            waiter
        };
        let mut granted = waiter.granted.lock();
        while !*granted {
            waiter.wake.wait(&mut granted);
        }
        RowHold { locks: self, span, waited: true }
    }

    /// Waits for all threads that held a part of the row at the time of the call.
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
        for waiter in granted {
            *waiter.granted.lock() = true;
            waiter.wake.notify_one();
        }
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

    fn hold(&mut self, span: Span) {
        match self.held.iter_mut().find(|h| h.is_none()) {
            Some(free) => *free = Some(span),
            None => self.more.push(span),
        }
    }

    /// Releases a hold. Equal holds are interchangeable: only shared ones can be equal.
    fn let_go(&mut self, span: Span) {
        if let Some(held) = self.held.iter_mut().find(|h| **h == Some(span)) {
            *held = None;
        } else if let Some(at) = self.more.iter().position(|h| *h == span) {
            self.more.swap_remove(at);
        } else {
            unreachable!("what is let go was held");
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
mod tests {
    use super::*;
    use lanefs_lanes::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    fn span(row: u64, from: u64, to: u64, mode: Mode) -> Span {
        Span { row, from, to, mode }
    }

    fn waits(locks: &RowLocks, wanted: Span) -> bool {
        let got = AtomicBool::new(false);
        std::thread::scope(|s| {
            let keep = locks.lock(span(wanted.row, 4096, 8192, Mode::Shared));
            let thread = s.spawn(|| {
                drop(locks.lock(wanted));
                got.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            let waited = !got.load(Ordering::SeqCst);
            drop(keep);
            thread.join().unwrap();
            waited
        })
    }

    #[test]
    fn only_what_conflicts_waits() {
        let locks = RowLocks::new();
        assert!(waits(&locks, span(7, 0, 8192, Mode::Exclusive)));
        assert!(!waits(&locks, span(7, 0, 8192, Mode::Shared)));
        assert!(!waits(&locks, span(7, 8192, 9000, Mode::Exclusive)));
        assert!(!waits(&locks, span(7, 0, 4096, Mode::Exclusive)));
    }

    #[test]
    fn rows_side_by_side_share_no_cache_line() {
        let locks = RowLocks::new();
        let at: Vec<usize> =
            (0..SHARDS as u64).map(|row| std::ptr::from_ref(locks.shard(row)).addr()).collect();
        assert!(at.iter().all(|a| a % 128 == 0));
        assert!(at.windows(2).all(|w| w[1] - w[0] >= 128 + size_of::<Shard>() / 128 * 128));
    }

    #[test]
    fn many_threads_on_few_ranges_exclude_each_other_and_all_come_through() {
        let seed = 41;
        println!("seed {seed}");
        let locks = RowLocks::new();
        let inside: Vec<AtomicUsize> = (0..8).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|s| {
            for thread in 0..6 {
                let (locks, inside) = (&locks, &inside);
                s.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed + thread);
                    for _ in 0..2000 {
                        let from = rng.u64(..8);
                        let to = rng.u64(from + 1..=8);
                        let mode = if rng.u8(..3) == 0 { Mode::Shared } else { Mode::Exclusive };
                        let mine = if mode == Mode::Shared { 1 } else { 100 };
                        let _hold = locks.lock(span(3, from, to, mode));
                        for cell in &inside[from as usize..to as usize] {
                            let others = cell.fetch_add(mine, Ordering::SeqCst);
                            assert!(if mine == 100 { others == 0 } else { others < 100 });
                        }
                        for cell in &inside[from as usize..to as usize] {
                            cell.fetch_sub(mine, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert!(locks.shard(3).lock().held.iter().all(Option::is_none));
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use super::*;
    use crate::schedules::explore;
    use lanefs_lanes::sync::atomic::{AtomicUsize, Ordering};
    use lanefs_lanes::sync::thread;

    /// Runs writers and readers of overlapping ranges of one row: checks exclusion and that all of
    /// them finish, since the checker reports a deadlock.
    fn ranges_of_one_row() {
        let locks = Arc::new(RowLocks::new());
        let inside = Arc::new(std::array::from_fn::<_, 3, _>(|_| AtomicUsize::new(0)));
        let wants = [
            (0, 2, Mode::Exclusive),
            (1, 3, Mode::Exclusive),
            (0, 1, Mode::Shared),
            (2, 3, Mode::Exclusive),
            (0, 3, Mode::Shared),
        ];
        let threads: Vec<_> = wants
            .into_iter()
            .map(|(from, to, mode)| {
                let (locks, inside) = (locks.clone(), inside.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let _hold = locks.lock(Span { row: 1, from, to, mode });
                        let mine = if mode == Mode::Shared { 1 } else { 100 };
                        for cell in &inside[from as usize..to as usize] {
                            let others = cell.fetch_add(mine, Ordering::SeqCst);
                            assert!(if mine == 100 { others == 0 } else { others < 100 });
                        }
                        thread::yield_now();
                        for cell in &inside[from as usize..to as usize] {
                            cell.fetch_sub(mine, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("no panic"));
    }

    #[test]
    fn shuttle_no_waiter_is_left_behind_on_a_row() {
        explore(5000, ranges_of_one_row);
    }
}
