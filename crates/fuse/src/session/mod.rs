//! A mount being served: the first handshake, then the threads that read and answer.
//!
//! On type `fuseblk` the last request is DESTROY, for which umount(2) waits. The thread that reads it
//! leaves it unanswered and ends the session. The other threads wait in read(2), which nothing but a
//! signal interrupts. When all have ended, the caller closes the file system, and then lets go of the
//! [`Farewell`], which answers.

mod pace;
mod readers;
mod wake;

use crate::protocol::abi::opcode;
use crate::protocol::{Errno, Outbox, Request, agree};
use crate::service::{Answer, Service};
use crate::transport::{Channel, Inbox};
use pace::Pace;
use readers::{Join, Readers};
use rustix::fd::OwnedFd;
use std::io;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// A connection that has shaken hands.
pub struct Session<S> {
    server: S,
    channel: Channel,
    readers: Readers,
}

impl<S: Service> Session<S> {
    /// Takes over `device`, the descriptor that the mount was made with, and agrees with the kernel
    /// on how to talk.
    ///
    /// # Errors
    /// The kernel is too old, or went away.
    pub fn start(device: OwnedFd, mut server: S) -> io::Result<Session<S>> {
        let channel = Channel::new(device);
        let (mut inbox, mut outbox) = (Inbox::new(), Outbox::new());
        loop {
            let Some(mut request) = channel.receive(&mut inbox, || false)? else {
                return Err(io::Error::other("unmounted before it was served"));
            };
            let unique = request.header.unique;
            if request.header.opcode != opcode::INIT {
                channel.reply(unique, &mut outbox, Some(Errno::IO));
                continue;
            }
            return match agree(&mut request, &mut outbox, server.wishes()) {
                Ok(flags) => {
                    server.agreed(flags);
                    channel.reply(unique, &mut outbox, None);
                    let processors = thread::available_parallelism().map_or(1, usize::from);
                    let readers = Readers::new(processors.max(2));
                    Ok(Session { server, channel, readers })
                }
                Err(error) => {
                    channel.reply(unique, &mut outbox, Some(error));
                    Err(io::Error::other("this kernel's FUSE is too old (Linux 5.12 is needed)"))
                }
            };
        }
    }

    /// Serves until the file system is unmounted, and gives the server back to be closed. The unmount may
    /// wait until the farewell is dropped.
    ///
    /// # Errors
    /// /dev/fuse failed; the server is still given back.
    pub fn run(self) -> (S, io::Result<()>, Farewell) {
        let this = &self;
        let outcome = thread::scope(|scope| {
            let mut workers = Vec::new();
            let pauses = thread::Builder::new().name("fuse-pause".into());
            // Without this thread there is the commit interval.
            let _ = pauses.spawn_scoped(scope, || {
                while this.readers.wait_for_pause() {
                    this.server.paused();
                }
            });
            this.readers.watch(|n| {
                let worker = thread::Builder::new().name(format!("fuse-{n}"));
                let worker = worker.spawn_scoped(scope, move || this.work(n));
                worker.map(|worker| workers.push(worker)).is_ok()
            });
            if workers.is_empty() {
                this.readers.end();
                return Err(io::Error::other("no threads to serve with"));
            }
            while !workers.iter().all(ScopedJoinHandle::is_finished) {
                // Again and again: a thread that is about to call read(2) misses a signal.
                wake::interrupt(this.readers.running());
                thread::sleep(Duration::from_millis(1));
            }
            // All of them, before the first that failed is told.
            let panicked = |_| Err(io::Error::other("a serving thread panicked"));
            let join = |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(panicked);
            let ended: Vec<io::Result<Option<u64>>> = workers.into_iter().map(join).collect();
            ended.into_iter().try_fold(None, |unique: Option<u64>, ended| Ok(unique.or(ended?)))
        });
        let Session { server, channel, .. } = self;
        let (outcome, unique) = match outcome {
            Ok(unique) => (Ok(()), unique),
            Err(error) => (Err(error), None),
        };
        (server, outcome, Farewell { channel, unique })
    }

    /// Thread `me`; the number of DESTROY if it read that.
    fn work(&self, me: usize) -> io::Result<Option<u64>> {
        self.readers.runs_as(me, wake::this_thread());
        let ended = self.read_and_answer(me);
        self.readers.runs_as(me, 0);
        ended
    }

    fn read_and_answer(&self, me: usize) -> io::Result<Option<u64>> {
        let (mut inbox, mut outbox) = (Inbox::new(), Outbox::new());
        let mut pace = Pace::new();
        loop {
            let request = match self.channel.receive(&mut inbox, || self.readers.is_over()) {
                Ok(Some(request)) if request.header.opcode == opcode::DESTROY => {
                    self.readers.end();
                    return Ok(Some(request.header.unique));
                }
                Ok(Some(request)) => request,
                ended => {
                    self.readers.end();
                    return ended.map(|_| None);
                }
            };
            let (opcode, begun) = (request.header.opcode, Instant::now());
            let stays = if pace.is_slow(opcode) {
                self.readers.leave(me);
                self.answer(request, &mut outbox);
                false
            } else {
                let serving = self.readers.begin(me);
                self.answer(request, &mut outbox);
                self.readers.done(me, serving)
            };
            pace.took(opcode, begun.elapsed());
            if stays {
                continue;
            }
            match self.readers.join(me) {
                Join::Reader => {}
                Join::End => return Ok(None),
                Join::Idle => {
                    (inbox, outbox) = (Inbox::new(), Outbox::new());
                    if self.readers.park(me, false) == Join::End {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn answer(&self, request: Request<'_>, outbox: &mut Outbox) {
        let unique = request.header.unique;
        match self.server.serve(request, outbox, &self.channel) {
            Ok(Answer::Reply) => self.channel.reply(unique, outbox, None),
            Ok(Answer::Silence) => {}
            Err(error) => self.channel.reply(unique, outbox, Some(error)),
        }
    }
}

/// The answer to the unmount, if that waits for one: given when this is dropped.
#[derive(Debug)]
pub struct Farewell {
    channel: Channel,
    unique: Option<u64>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if let Some(unique) = self.unique {
            let mut outbox = Outbox::new();
            outbox.clear();
            self.channel.reply(unique, &mut outbox, None);
        }
    }
}
