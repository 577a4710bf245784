//! State that the threads of a session share.

use super::readers::Readers;
use super::workers::Workers;
use crate::transport::{Channel, Entry, Mailbox};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::AtomicBool;
use rustix::thread::CpuSet;
use std::io;

/// The request DESTROY, by either transport.
pub enum Last {
    Read(u64),
    Ring(Entry),
}

/// The result of a thread: the last request, if this thread received it.
pub type Ended = io::Result<Option<Last>>;

/// State that the threads of a session share.
pub struct Shared<'a, S> {
    pub server: &'a S,
    pub channel: &'a Channel,
    pub readers: Readers,
    pub workers: Workers<Job>,
    pub mailboxes: Vec<Arc<Mailbox>>,
    /// The kernel refused the rings; all requests come by read(2).
    pub without_rings: AtomicBool,
    pub worker_panicked: AtomicBool,
    /// The processors on which threads may run.
    pub allowed: Option<CpuSet>,
}

/// A request that is expected to be slow, and its ring.
pub struct Job {
    pub entry: Entry,
    pub ring: usize,
}
