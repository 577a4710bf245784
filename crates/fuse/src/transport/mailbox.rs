//! The queue in which other threads put served requests for a ring's thread to commit.

use super::entry::Entry;
use lanefs_lanes::{Mutex, Rank};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::time::Duration;

/// A request that was served.
pub struct Answered {
    /// The entry, with the reply.
    pub entry: Entry,
    /// The opcode of the request.
    pub opcode: u32,
    /// The service time.
    pub took: Duration,
}

/// The served requests of one ring. *Locking*: a leaf, held only to put in a request or take one
/// out.
pub struct Mailbox {
    answered: Mutex<Vec<Answered>>,
    bell: OwnedFd,
}

impl Mailbox {
    /// Creates an empty mailbox.
    ///
    /// # Errors
    /// The host has no file descriptor left.
    pub fn new() -> io::Result<Mailbox> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { answered: Mutex::new(Rank::Bucket, Vec::new()), bell })
    }

    /// Puts in a served request, and wakes the ring's thread.
    pub fn put(&self, answered: Answered) {
        self.answered.lock().push(answered);
        self.wake();
    }

    /// Takes out a request.
    pub fn take(&self) -> Option<Answered> {
        self.answered.lock().pop()
    }

    /// Wakes the ring's thread. The ring sees each write to the eventfd, so its counter is never
    /// read; it would overflow after 2^64 wake-ups.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Returns the eventfd that the ring polls.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
