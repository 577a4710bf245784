//! Where other threads leave what a ring's thread is to send off.

use super::entry::Entry;
use lanefs_lanes::{Mutex, Rank};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::time::Duration;

/// A request that was answered.
pub struct Answered {
    /// With the reply.
    pub entry: Entry,
    /// What it asked for.
    pub opcode: u32,
    /// How long that took.
    pub took: Duration,
}

/// Answered requests of one ring. *Locking*: a leaf, held to put in or take out.
pub struct Mailbox {
    answered: Mutex<Vec<Answered>>,
    bell: OwnedFd,
}

impl Mailbox {
    /// An empty one.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn new() -> io::Result<Mailbox> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Mailbox { answered: Mutex::new(Rank::Bucket, Vec::new()), bell })
    }

    /// Leaves an answered request, and wakes the ring's thread.
    pub fn put(&self, answered: Answered) {
        self.answered.lock().push(answered);
        self.wake();
    }

    /// Takes one of what was left.
    pub fn take(&self) -> Option<Answered> {
        self.answered.lock().pop()
    }

    /// Wakes the ring's thread. The ring looks at each write, so that the sum is never read; it would be
    /// full after 2^64 of them.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// What the ring watches.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
