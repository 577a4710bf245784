//! Those who wait for a partial parity log.
//!
//! Each thread has its own condition: what one header brings concerns those whose entries are in it, and
//! one more that writes the next. Were all woken for each header, most of many writers would only go back
//! to sleep, and be in the way of the one that has something to do.

use lanefs_lanes::Condvar;
use lanefs_lanes::sync::Arc;
use std::collections::VecDeque;

/// Counts those who log.
pub(crate) type Ticket = u64;

/// Threads that wait, in the order of their tickets. Guarded by the books of the log.
#[derive(Debug, Default)]
pub(crate) struct Waiters(VecDeque<Waiter>);

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    told: Arc<Condvar>,
}

impl Waiters {
    pub(crate) fn add(&mut self, ticket: Ticket, told: Arc<Condvar>) {
        let at = self.0.partition_point(|waiter| waiter.ticket < ticket);
        self.0.insert(at, Waiter { ticket, told });
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) {
        self.0.retain(|waiter| waiter.ticket != ticket);
    }

    /// Wakes those whose entries are durable, and who is to write the next header.
    pub(crate) fn wake_served(&mut self, durable: Ticket) {
        while self.0.front().is_some_and(|waiter| waiter.ticket <= durable) {
            self.wake_first();
        }
        self.wake_first();
    }

    pub(crate) fn wake_first(&mut self) {
        if let Some(waiter) = self.0.pop_front() {
            waiter.told.notify_one();
        }
    }

    pub(crate) fn wake_all(&mut self) {
        self.0.drain(..).for_each(|waiter| waiter.told.notify_one());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn who_is_served_and_the_next_are_woken_and_no_others() {
        let mut waiters = Waiters::default();
        [3, 1, 2, 5, 4].into_iter().for_each(|n| waiters.add(n, Arc::new(Condvar::new())));
        waiters.wake_served(2);
        let left = |waiters: &Waiters| waiters.0.iter().map(|w| w.ticket).collect::<Vec<_>>();
        assert_eq!(left(&waiters), [4, 5], "1 and 2 are served, 3 writes the next");
        waiters.remove(4);
        assert_eq!(left(&waiters), [5]);
        waiters.wake_all();
        assert_eq!(left(&waiters), []);
    }
}
