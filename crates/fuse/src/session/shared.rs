//! What the threads of a session share.

use super::readers::Readers;
use super::workers::Workers;
use crate::transport::{Channel, Entry, Mailbox};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::AtomicBool;
use rustix::thread::CpuSet;
use std::io;

/// DESTROY, by either way.
pub enum Last {
    Read(u64),
    Ring(Entry),
}

/// What a thread came to: the last request, if it was this thread that got it.
pub type Ended = io::Result<Option<Last>>;

/// What the threads of a session share.
pub struct Shared<'a, S> {
    pub server: &'a S,
    pub channel: &'a Channel,
    pub readers: Readers,
    pub workers: Workers<Job>,
    pub mailboxes: Vec<Arc<Mailbox>>,
    /// The kernel refused the rings; all requests come by read(2).
    pub without_rings: AtomicBool,
    pub worker_panicked: AtomicBool,
    /// The processors that threads may run on.
    pub allowed: Option<CpuSet>,
}

/// A request that is expected to be slow, and the ring that it came by.
pub struct Job {
    pub entry: Entry,
    pub ring: usize,
}
