//! Serves requests by io_uring: each thread has a ring with one entry, and serves the request that
//! the kernel puts into it.
//!
//! The kernel (Linux 6.14) has a queue for each possible processor, and puts a request into the
//! queue of its client's processor. The kernel holds requests back until each queue has an entry,
//! so the rings are made before INIT is answered. If the kernel refuses an entry for a queue that
//! has none yet, all requests come by read(2). FORGET and INTERRUPT always come by read(2); one
//! more thread reads them.
//!
//! The threads of a queue are bound to its processor. The kernel gives a request to the thread that
//! replied last, so with one client the same thread serves all requests. A thread that waits for
//! the device delays no other request, provided that another thread of its queue is ready to take
//! requests. So if too few other threads of the queue wait, a thread starts another one before it
//! serves its request. The watch thread also starts threads if a queue makes no progress.
//!
//! A request that finds no waiting thread stays in the kernel's queue until a thread of the queue
//! replies, even if a thread is started for it. So some threads wait in reserve. To serve a search
//! for holes or an ioctl, a thread may make the kernel send further requests, and wait until other
//! threads have served them. If no other thread of the queue waits and none can be started, the
//! search or the ioctl fails with EBUSY. The queues of absent processors need an entry too; one
//! thread, whose ring has an entry for each of them, serves all these queues.
//!
//! The number of threads never decreases, because the kernel has no way to take an entry out of a
//! queue. If a thread that has an entry terminates for any reason, the session ends, because its
//! queue might otherwise have no entry.

use super::processors::{Processors, bind};
use super::queues::{Queue, Seen, Waiting, reserve};
use super::shared::{Ended, Last, Shared};
use super::wake;
use crate::protocol::abi::opcode;
use crate::protocol::{Errno, Outbox};
use crate::service::{Answer, Service};
use crate::transport::{Entry, Event, Ring, ring};
use lanefs_lanes::Padded;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_lanes::sync::unscheduled::mpsc;
use rustix::fd::AsFd;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, Scope};
use std::time::Duration;

/// The number of threads that all queues together should not exceed. There may still be more
/// threads, since every queue is allowed [`FEWEST_MOST`] threads in any case.
const ALL: usize = 1024;
/// The largest number of requests from one processor that are served at once. Further requests wait
/// in the kernel's queue.
const MOST: usize = 64;
const FEWEST_MOST: usize = 16;
/// The time after which an idle ring frees its memory for bulk data.
const IDLE: Duration = Duration::from_secs(2);

/// The queues of a session, and their first rings.
#[derive(Default)]
pub struct Rings {
    pub queues: Vec<Padded<Queue>>,
    /// Each ring, with the index of its queue in `queues`.
    pub rings: Vec<(usize, Ring)>,
}

/// Creates rings for this machine; returns them and the number of their queues.
///
/// # Errors
/// The host has no io_uring for this process, or no memory.
pub fn make() -> io::Result<(Rings, usize)> {
    let processors = Processors::here()?;
    let most = (ALL / processors.online.len().max(1)).clamp(FEWEST_MOST, MOST);
    let reserve = reserve(processors.online.len());
    let mut made = Rings::default();
    for number in &processors.online {
        for _ in 0..reserve {
            made.rings.push((made.queues.len(), Ring::new(&[*number])?));
        }
        made.queues.push(Padded(Queue::new(*number, reserve, most)));
    }
    if made.queues.is_empty() {
        return Err(io::Error::other("no processor is online"));
    }
    // The queue of each absent processor needs an entry. No client runs on these processors, so one
    // thread serves all these queues.
    let absent = processors.absent();
    if let Some(first) = absent.first() {
        made.rings.push((made.queues.len(), Ring::new(&absent)?));
        made.queues.push(Padded(Queue::new(*first, absent.len(), absent.len())));
    }
    Ok((made, usize::from(processors.possible)))
}

/// The channel by which a new thread reports whether the kernel took its entries.
type Report = mpsc::Sender<io::Result<bool>>;

impl<S: Service> Shared<'_, S> {
    /// Starts a thread for each ring, and gives all entries to the kernel. Returns the reason if a
    /// thread could not be started or the kernel refused an entry. In that case all requests come
    /// by read(2), and the threads of the rings terminate.
    ///
    /// # Errors
    /// If it is unknown whether the kernel uses the rings.
    pub(super) fn start_rings<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        rings: Vec<(usize, Ring)>,
    ) -> io::Result<Option<String>> {
        let (report, reports) = mpsc::channel();
        let wanted = rings.len();
        let mut why = None;
        for (queue, ring) in rings {
            if let Err(error) = self.start_ring(scope, queue, ring, Some(report.clone())) {
                why = Some(format!("the host starts too few threads: {error}"));
                break;
            }
        }
        drop(report);
        // A thread that panicked sends nothing.
        let reports: Vec<io::Result<bool>> = reports.iter().collect();
        let mut all = reports.len() == wanted;
        for registered in reports {
            all &= registered?;
        }
        if !all {
            self.without_rings.store(true, Ordering::Release);
            ring::refuse(self.channel.as_fd())?;
            self.interrupt_rings();
        }
        Ok((!all).then(|| why.unwrap_or_else(|| "by the kernel".into())))
    }

    fn start_ring<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        queue: usize,
        ring: Ring,
        report: Option<Report>,
    ) -> io::Result<()> {
        let thread =
            thread::Builder::new().name(format!("fuse-ring-{}", self.queues[queue].number));
        thread.spawn_scoped(scope, move || self.run_ring(scope, queue, ring, report)).map(|_| ())
    }

    /// Starts another thread of a queue; returns false if that is not possible.
    fn start_another<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, queue: usize) -> bool {
        if !self.queues[queue].add_thread() {
            return false;
        }
        let ring = Ring::new(&[self.queues[queue].number]);
        let started = ring.and_then(|ring| self.start_ring(scope, queue, ring, None)).is_ok();
        if !started {
            self.queues[queue].not_started();
        }
        started
    }

    /// Starts threads for queues that make no progress. Returns whether requests came since the
    /// previous call.
    pub(super) fn look_at_rings<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        seen: &mut [Seen],
    ) -> bool {
        let mut busy = false;
        for ((at, queue), seen) in self.queues.iter().enumerate().zip(seen) {
            let (was_busy, more) = queue.look(seen);
            busy |= was_busy;
            let _ = (0..more).all(|_| self.start_another(scope, at));
        }
        busy
    }

    /// Makes the threads of rings terminate. Called when the session is over, or when the rings
    /// could not be started.
    pub(super) fn interrupt_rings(&self) {
        loop {
            let running = self.ring_threads.lock().clone();
            if running.is_empty() {
                return;
            }
            wake::interrupt(running.into_iter());
            // The signals are sent again and again, since a thread that is just about to wait
            // misses a signal.
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn must_end(&self) -> bool {
        self.without_rings.load(Ordering::Acquire) || self.readers.is_over()
    }

    fn run_ring<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        queue: usize,
        ring: Ring,
        report: Option<Report>,
    ) {
        let me = wake::this_thread();
        self.ring_threads.lock().push(me);
        let work = AssertUnwindSafe(|| self.register_and_serve(scope, queue, ring, report));
        let panicked = |_| Some(Err(io::Error::other("a serving thread panicked")));
        if let Some(ended) = catch_unwind(work).unwrap_or_else(panicked) {
            self.ring_ends.lock().push(ended);
            if !self.without_rings.load(Ordering::Acquire) {
                self.readers.end();
            }
        }
        self.ring_threads.lock().retain(|thread| *thread != me);
    }

    /// Returns the result of the thread. Returns `None` if the thread was added to a running
    /// session and the kernel refused the thread's entry. The other threads of the queue then
    /// continue without this thread. The kernel refuses entries during an unmount, and if it has no
    /// memory.
    fn register_and_serve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        queue: usize,
        mut ring: Ring,
        report: Option<Report>,
    ) -> Option<Ended> {
        bind(self.queues[queue].number);
        let registered = ring.register(self.channel.as_fd());
        match report {
            Some(report) => {
                let is_registered = matches!(registered, Ok(true));
                let _ = report.send(registered);
                // The main thread waits until every thread has sent a result or dropped its
                // sender, and decides whether the session ends.
                drop(report);
                if !is_registered {
                    return Some(self.wait_for_the_end());
                }
            }
            None => match registered {
                Ok(true) => {}
                Ok(false) => {
                    self.queues[queue].not_started();
                    return None;
                }
                Err(error) => return Some(Err(error)),
            },
        }
        Some(self.serve_ring(scope, queue, ring))
    }

    fn wait_for_the_end(&self) -> Ended {
        while !self.must_end() {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    }

    fn serve_ring<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        at: usize,
        mut ring: Ring,
    ) -> Ended {
        let (queue, mut beside) = (&*self.queues[at], Outbox::new());
        let mut warm = false;
        if !ring.has_event() && self.must_end() {
            // The session ended before this thread was in the list of threads to interrupt.
            return Ok(None);
        }
        loop {
            while let Some(event) = ring.next()? {
                let mut entry = match event {
                    Event::Request(entry) => entry,
                    Event::Gone(error) => return unmounted(error),
                };
                warm = true;
                let waiting = queue.takes();
                self.readers.tell_watch();
                let opcode = entry.request_header().opcode;
                if opcode == opcode::DESTROY {
                    return Ok(Some(Last::Ring(entry)));
                }
                let started = waiting != Waiting::Enough && self.start_another(scope, at);
                let is_alone = waiting == Waiting::None && !started;
                if is_alone && self.server.waits_for_kernel(opcode) {
                    // This request would wait for further requests of the kernel, which no thread
                    // would serve.
                    entry.finish(&beside, Some(Errno::BUSY));
                } else {
                    self.answer_entry(&mut entry, &mut beside);
                }
                ring.commit(entry)?;
                queue.waits();
            }
            if !ring.wait(warm.then_some(IDLE))? {
                ring.give_back();
                warm = false;
            }
            if !ring.has_event() && self.must_end() {
                return Ok(None);
            }
        }
    }

    fn answer_entry(&self, entry: &mut Entry, beside: &mut Outbox) {
        let answer = match entry.request(beside) {
            Some((request, outbox)) => self.server.serve(request, outbox, self.channel),
            None => Err(Errno::INVAL),
        };
        let error = match answer {
            Ok(Answer::Reply) => None,
            // Requests that need no reply come only by read(2). Every request on a ring must get a
            // reply, so this one gets an error.
            Ok(Answer::Silence) => Some(Errno::INVAL),
            Err(error) => Some(error),
        };
        entry.finish(beside, error);
    }
}

/// Handles an entry that the kernel returned without a request, because the connection is closed or
/// failed.
fn unmounted(error: rustix::io::Errno) -> Ended {
    use rustix::io::Errno as Os;
    match error {
        Os::NOTCONN | Os::CONNABORTED | Os::NODEV | Os::CANCELED => Ok(None),
        error => Err(error.into()),
    }
}
