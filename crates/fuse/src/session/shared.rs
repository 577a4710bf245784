//! State that the threads of a session share.

use super::queues::Queue;
use super::readers::Readers;
use crate::transport::{Channel, Entry};
use lanefs_lanes::sync::atomic::AtomicBool;
use lanefs_lanes::{Mutex, Padded, Rank};
use std::io;

/// The DESTROY request, which comes by one of the two transports.
pub enum Last {
    Read(u64),
    Ring(Entry),
}

/// The result of a thread: DESTROY if this thread received it, or an error.
pub type Ended = io::Result<Option<Last>>;

/// State that the threads of a session share.
pub struct Shared<'a, S> {
    pub server: &'a S,
    pub channel: &'a Channel,
    pub readers: Readers,
    /// The queues of the rings.
    pub queues: Vec<Padded<Queue>>,
    /// The host's ids of the threads of rings. *Locking*: a leaf, taken when such a thread starts
    /// or terminates.
    pub ring_threads: Mutex<Vec<u32>>,
    /// The results of the threads of rings. *Locking*: a leaf, taken when such a thread or the
    /// session ends.
    pub ring_ends: Mutex<Vec<Ended>>,
    /// Set if a thread of a ring could not be started or the kernel refused an entry of a ring. All
    /// requests then come by read(2).
    pub without_rings: AtomicBool,
}

impl<'a, S> Shared<'a, S> {
    /// Creates the state of a session that no thread serves yet.
    pub fn new(
        server: &'a S,
        channel: &'a Channel,
        readers: Readers,
        queues: Vec<Padded<Queue>>,
    ) -> Shared<'a, S> {
        Shared {
            server,
            channel,
            readers,
            queues,
            ring_threads: Mutex::new(Rank::Bucket, Vec::new()),
            ring_ends: Mutex::new(Rank::Bucket, Vec::new()),
            without_rings: AtomicBool::new(false),
        }
    }
}
