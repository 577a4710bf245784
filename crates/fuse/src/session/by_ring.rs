//! Serves requests on one thread for each ring, bound to the processor of its queue.
//!
//! The thread serves requests that are expected to be quick, and gives the others to the
//! [`Workers`], which put each served entry into the ring's mailbox. If a ring's thread terminates
//! for any reason, the session ends: otherwise requests on its ring would wait for ever.
//!
//! [`Workers`]: super::workers::Workers

use super::pace::Pace;
use super::processors::{Processors, bind, unbind};
use super::shared::{Ended, Job, Last, Shared};
use super::wake;
use super::workers::{self, Threads};
use crate::protocol::abi::opcode;
use crate::protocol::{Errno, Outbox};
use crate::service::{Answer, Service};
use crate::transport::{Answered, Entry, Event, Ring, ring};
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_lanes::sync::unscheduled::mpsc;
use rustix::fd::AsFd;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The entries of all queues together, if each queue gets more than [`FEWEST`].
const ENTRIES: usize = 1024;
/// The most requests of one processor that may be under way; further ones wait in the kernel's
/// queue.
const MOST: usize = 64;
const FEWEST: usize = 16;
/// The time after which an idle ring returns the memory of bulk data.
const IDLE: Duration = Duration::from_secs(2);

/// Each ring with the processor to which its thread is bound.
pub type Rings = Vec<(u16, Ring)>;

/// Creates rings for this machine; returns them and the number of their queues.
///
/// # Errors
/// The host has no io_uring for this process, or no memory.
pub fn make() -> io::Result<(Rings, usize)> {
    let processors = Processors::here()?;
    let queues = processors.queues();
    let entries = (ENTRIES / queues.len().max(1)).clamp(FEWEST, MOST);
    let with_ring = |own: &Vec<u16>| match own.first() {
        Some(processor) => Ok((*processor, Ring::new(own, entries)?)),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    let rings = queues.iter().map(with_ring).collect::<io::Result<Rings>>()?;
    if rings.is_empty() {
        return Err(io::Error::other("no processor is online"));
    }
    Ok((rings, usize::from(processors.possible)))
}

impl<S: Service> Shared<'_, S> {
    /// Starts a thread for each ring, and gives all entries to the kernel. Returns false if the
    /// kernel refused: then it sends all requests by read(2), and the threads terminate.
    ///
    /// # Errors
    /// It is unknown whether the kernel uses the rings.
    pub(super) fn start_rings<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        rings: Rings,
        threads: &mut Vec<ScopedJoinHandle<'scope, Ended>>,
    ) -> io::Result<bool> {
        let (tell, told) = mpsc::channel();
        let mut all = (0..workers::FEWEST).all(|_| self.start_worker(scope).is_ok());
        for (me, (processor, ring)) in rings.into_iter().enumerate() {
            if !all {
                break;
            }
            let tell = tell.clone();
            let thread = thread::Builder::new().name(format!("fuse-ring-{processor}"));
            let body = move || self.serve_ring(scope, me, processor, ring, tell);
            all = thread.spawn_scoped(scope, body).map(|thread| threads.push(thread)).is_ok();
        }
        drop(tell);
        // A thread that panicked sends nothing.
        let told: Vec<io::Result<bool>> = told.iter().collect();
        all &= told.len() == self.mailboxes.len();
        for registered in told {
            all &= registered?;
        }
        if !all {
            self.without_rings.store(true, Ordering::Release);
            self.workers.end();
            self.mailboxes.iter().for_each(|mailbox| mailbox.wake());
            ring::refuse(self.channel.as_fd())?;
        }
        Ok(all)
    }

    fn start_worker<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> io::Result<()> {
        let worker = thread::Builder::new().name("fuse-slow".into());
        let body = || {
            if catch_unwind(AssertUnwindSafe(|| self.serve_slow())).is_err() {
                self.worker_panicked.store(true, Ordering::Release);
                self.readers.end();
            }
        };
        worker.spawn_scoped(scope, body).map(|_| ())
    }

    fn serve_ring<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        me: usize,
        processor: u16,
        mut ring: Ring,
        tell: mpsc::Sender<io::Result<bool>>,
    ) -> Ended {
        let end = EndOf(self);
        bind(processor);
        let registered = ring.register(self.channel.as_fd());
        let is_registered = matches!(registered, Ok(true));
        let _ = tell.send(registered);
        // The main thread waits until every thread has sent a result or dropped its sender.
        drop(tell);
        if !is_registered {
            // The main thread decides whether the session ends.
            std::mem::forget(end);
            return Ok(None);
        }
        self.serve_events(scope, me, ring)
    }

    fn serve_events<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        me: usize,
        mut ring: Ring,
    ) -> Ended {
        let (mut pace, mut beside) = (Pace::new(), Outbox::new());
        let mut warm = false;
        loop {
            while let Some(event) = ring.next()? {
                let mut entry = match event {
                    Event::Request(entry) => entry,
                    Event::Bell => {
                        while let Some(answered) = self.mailboxes[me].take() {
                            self.readers.ring_serves(me);
                            pace.took(answered.opcode, answered.took);
                            ring.commit(answered.entry)?;
                        }
                        if self.without_rings.load(Ordering::Acquire) || self.readers.is_over() {
                            return Ok(None);
                        }
                        continue;
                    }
                    Event::Gone(error) => return unmounted(error),
                };
                warm = true;
                self.readers.ring_serves(me);
                let opcode = entry.request_header().opcode;
                if opcode == opcode::DESTROY {
                    return Ok(Some(Last::Ring(entry)));
                }
                if pace.is_slow(opcode) || self.server.waits_for_kernel(opcode) {
                    self.give(scope, Job { entry, ring: me });
                    continue;
                }
                let time = self.answer_entry(&mut entry, &mut beside, pace.is_suspect(opcode));
                pace.took(opcode, time);
                ring.commit(entry)?;
            }
            if !ring.wait(warm.then_some(IDLE))? {
                ring.give_back();
                warm = false;
            }
        }
    }

    fn give<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, job: Job) {
        if self.workers.give(job) == Threads::OneMore && self.start_worker(scope).is_err() {
            self.workers.not_started();
        }
    }

    fn serve_slow(&self) {
        if let Some(allowed) = &self.allowed {
            unbind(allowed);
        }
        let mut beside = Outbox::new();
        while let Some(Job { mut entry, ring }) = self.workers.next() {
            let opcode = entry.request_header().opcode;
            let took = self.answer_entry(&mut entry, &mut beside, true);
            if let Some(mailbox) = self.mailboxes.get(ring) {
                mailbox.put(Answered { entry, opcode, took });
            }
        }
    }

    /// Serves a request and returns its service time. With `looks_closely` the time is zero if the
    /// thread never slept: a thread that lost its processor to another thread was not slow, and
    /// giving its requests to a worker would cost two wake-ups for each.
    fn answer_entry(
        &self,
        entry: &mut Entry,
        beside: &mut Outbox,
        looks_closely: bool,
    ) -> Duration {
        let (slept, begun) = (looks_closely.then(wake::times_slept), Instant::now());
        let answer = match entry.request(beside) {
            Some((request, outbox)) => self.server.serve(request, outbox, self.channel),
            None => Err(Errno::INVAL),
        };
        let error = match answer {
            Ok(Answer::Reply) => None,
            // Requests without a reply do not come by rings, and every request on a ring needs a
            // reply.
            Ok(Answer::Silence) => Some(Errno::INVAL),
            Err(error) => Some(error),
        };
        entry.finish(beside, error);
        let took = begun.elapsed();
        let stayed_awake = slept.is_some_and(|before| before == wake::times_slept());
        if stayed_awake { Duration::ZERO } else { took }
    }
}

/// Handles an entry that the kernel returned without a request: the connection is closed, or
/// failed.
fn unmounted(error: rustix::io::Errno) -> Ended {
    use rustix::io::Errno as Os;
    match error {
        Os::NOTCONN | Os::CONNABORTED | Os::NODEV | Os::CANCELED => Ok(None),
        error => Err(error.into()),
    }
}

/// Ends the session when the thread that owns this value returns or panics.
struct EndOf<'a, 'b, S>(&'a Shared<'b, S>);

impl<S> Drop for EndOf<'_, '_, S> {
    fn drop(&mut self) {
        if !self.0.without_rings.load(Ordering::Acquire) {
            self.0.readers.end();
        }
    }
}
