//! A thread for each ring, bound to the processor that its queue is for.
//!
//! It answers what is expected to be quick, and gives the rest to the [`Workers`]; they leave the answered
//! entry in the ring's mailbox. If a thread ends for whatever reason, the session ends: no request waits
//! for a ring that no thread looks at.
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

/// Entries of all queues together, where each has more than [`FEWEST`].
const ENTRIES: usize = 1024;
/// Requests of one processor that may be under way: further ones wait in the kernel's queue.
const MOST: usize = 64;
const FEWEST: usize = 16;
/// A ring that was idle for so long gives the memory of bulk data back.
const IDLE: Duration = Duration::from_secs(2);

/// Each ring with the processor that its thread is bound to.
pub type Rings = Vec<(u16, Ring)>;

/// Rings for this machine, and how many queues they have.
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
    /// Starts a thread for each ring, and gives all entries to the kernel. False if it refused: then it
    /// sends all by read(2), and the threads end.
    ///
    /// # Errors
    /// It is not known what the kernel does.
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
        // Of a thread that panicked nothing comes.
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
        // The main thread waits until all have told.
        drop(tell);
        if !is_registered {
            // Whether that ends the session, the main thread decides.
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

    /// Answers, and gives how long that took. With `looks_closely` that is nothing if the thread never slept:
    /// a thread that lost its processor to another was not slow, and handing its requests away would cost
    /// two wake-ups for each.
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
            // What needs no reply does not come by rings; all that does, does.
            Ok(Answer::Silence) => Some(Errno::INVAL),
            Err(error) => Some(error),
        };
        entry.finish(beside, error);
        let took = begun.elapsed();
        let stayed_awake = slept.is_some_and(|before| before == wake::times_slept());
        if stayed_awake { Duration::ZERO } else { took }
    }
}

/// The kernel has given an entry back: the connection is over, or something is wrong.
fn unmounted(error: rustix::io::Errno) -> Ended {
    use rustix::io::Errno as Os;
    match error {
        Os::NOTCONN | Os::CONNABORTED | Os::NODEV | Os::CANCELED => Ok(None),
        error => Err(error.into()),
    }
}

/// Ends the session when the thread that holds it ends, also by a panic.
struct EndOf<'a, 'b, S>(&'a Shared<'b, S>);

impl<S> Drop for EndOf<'_, '_, S> {
    fn drop(&mut self) {
        if !self.0.without_rings.load(Ordering::Acquire) {
            self.0.readers.end();
        }
    }
}
