//! Threads that wait for a partial parity log.
//!
//! Each thread has its own condition variable and lock. When a header is durable, only the threads
//! with entries in it have to wake, plus one thread that writes the next header. If a header woke
//! all threads, most would go back to sleep. Threads are woken after the log's lock is released,
//! because otherwise they would queue for that lock.

use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Condvar, Mutex, Rank};
use std::collections::VecDeque;

/// A number for each thread that logs, in order of arrival.
pub(crate) type Ticket = u64;

/// Why a waiting thread is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// The thread's entries are durable.
    Durable,
    /// The thread now has the turn to write a header, or the log has changed in another way; for
    /// example, the log has moved to another member. The thread must read the log's state.
    Look,
}

/// A thread that waits.
#[derive(Debug)]
pub(crate) struct LogWaiter {
    ticket: Ticket,
    reason: Mutex<Option<WakeReason>>,
    wake: Condvar,
}

impl LogWaiter {
    /// Waits until it is woken.
    pub(crate) fn wait(&self) -> WakeReason {
        let mut reason = self.reason.lock();
        loop {
            if let Some(reason) = *reason {
                return reason;
            }
            self.wake.wait(&mut reason);
        }
    }
}

/// Threads that have to be woken after the log's lock is released, each with the reason.
#[must_use = "threads sleep until they are woken"]
#[derive(Debug, Default)]
pub(crate) struct Wakes(Vec<(Arc<LogWaiter>, WakeReason)>);

impl Wakes {
    /// # Locking
    /// The caller does not hold the log's lock.
    pub(crate) fn wake(self) {
        for (waiter, reason) in self.0 {
            *waiter.reason.lock() = Some(reason);
            waiter.wake.notify_one();
        }
    }

    pub(crate) fn and(mut self, other: Wakes) -> Wakes {
        self.0.extend(other.0);
        self
    }

    /// Returns the ticket of the thread, if any, that must read the log's state.
    pub(crate) fn looks(&self) -> Option<Ticket> {
        self.0
            .iter()
            .find(|(_, reason)| *reason == WakeReason::Look)
            .map(|(waiter, _)| waiter.ticket)
    }
}

/// All waiting threads, in the order of their tickets. Guarded by the log's lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters(VecDeque<Arc<LogWaiter>>);

impl Waiters {
    /// Adds a thread to the queue. The thread starts to wait after it has released the log's lock.
    pub(crate) fn add(&mut self, ticket: Ticket) -> Arc<LogWaiter> {
        let reason = Mutex::new(Rank::Bucket, None);
        let waiter = Arc::new(LogWaiter { ticket, reason, wake: Condvar::new() });
        let at = self.0.partition_point(|waiter| waiter.ticket < ticket);
        self.0.insert(at, waiter.clone());
        waiter
    }

    /// Removes the threads whose entries are durable.
    pub(crate) fn take_served(&mut self, durable: Ticket) -> Wakes {
        let served = self.0.partition_point(|waiter| waiter.ticket <= durable);
        Wakes(self.0.drain(..served).map(|waiter| (waiter, WakeReason::Durable)).collect())
    }

    /// Removes the thread that has waited longest.
    pub(crate) fn take_first(&mut self) -> Wakes {
        Wakes(self.0.pop_front().map(|waiter| (waiter, WakeReason::Look)).into_iter().collect())
    }

    pub(crate) fn take_all(&mut self) -> Wakes {
        Wakes(self.0.drain(..).map(|waiter| (waiter, WakeReason::Look)).collect())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn served_waiters_and_the_next_are_woken_and_no_others() {
        let mut waiters = Waiters::default();
        let all: Vec<_> = [3, 1, 2, 5, 4].into_iter().map(|ticket| waiters.add(ticket)).collect();
        let wakes = waiters.take_served(2).and(waiters.take_first());
        assert_eq!(wakes.looks(), Some(3));
        wakes.wake();
        let reason = |ticket: Ticket| {
            let waiter = all.iter().find(|waiter| waiter.ticket == ticket).unwrap();
            *waiter.reason.lock()
        };
        assert_eq!(
            [1, 2, 3].map(reason),
            [WakeReason::Durable, WakeReason::Durable, WakeReason::Look].map(Some)
        );
        assert_eq!([4, 5].map(reason), [None; 2]);
        waiters.take_all().wake();
        assert_eq!([4, 5].map(reason), [Some(WakeReason::Look); 2]);
    }
}
