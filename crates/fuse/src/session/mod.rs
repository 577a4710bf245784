//! Serves a mount: the handshake first, then the threads that serve requests.
//!
//! On a mount of type `fuseblk` the last request is DESTROY, and umount(2) waits for the reply. The
//! thread that receives DESTROY does not reply, and ends the session. The other threads wait in
//! read(2) or at a ring; a signal interrupts either wait. When all threads have terminated, the
//! caller closes the file system and then drops the [`Farewell`], which sends the reply.

mod by_read;
mod by_ring;
mod clients;
mod look;
mod pace;
mod processors;
mod queues;
mod readers;
mod shared;
mod wake;

use crate::protocol::abi::opcode;
use crate::protocol::{Errno, Offer, Outbox, Transport};
use crate::service::Service;
use crate::transport::{ByRead, Carried, Channel, Inbox, Ring, ring};
use by_ring::Rings;
use queues::Seen;
use readers::{FEWEST_THREADS, Readers};
use rustix::fd::{AsFd, OwnedFd};
use shared::{Ended, Last, Shared};
use std::io;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

/// A connection after the handshake.
pub struct Session<S> {
    server: S,
    channel: Channel,
    rings: Rings,
    carried: Carried,
}

/// Returns the maximum number of readers in a session without rings.
fn most_readers() -> usize {
    thread::available_parallelism().map_or(1, usize::from).max(FEWEST_THREADS)
}

impl<S: Service> Session<S> {
    /// Takes `device`, the descriptor of the mount, and does the handshake with the kernel.
    ///
    /// # Errors
    /// The kernel is too old, or closed the connection.
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
            let offer = match Offer::take(&mut request) {
                Ok(offer) => offer,
                Err(error) => {
                    channel.reply(unique, &mut outbox, Some(error));
                    let old = "this kernel's FUSE is too old (Linux 5.12 is needed)";
                    return Err(io::Error::other(old));
                }
            };
            let wishes = server.wishes();
            // The rings are made before the reply to INIT, because after that reply the kernel
            // holds requests back until the rings are registered.
            let (rings, carried) = choose(wishes.transport, &offer);
            server.agreed(offer.accept(wishes, !rings.rings.is_empty(), &mut outbox));
            channel.reply(unique, &mut outbox, None);
            return Ok(Session { server, channel, rings, carried });
        }
    }

    /// Returns the transport of requests. If the kernel refuses the rings later,
    /// [`Service::carried`] receives the new transport.
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// Serves until the file system is unmounted, and returns the server, which the caller closes.
    /// The unmount may wait until the farewell is dropped.
    ///
    /// # Errors
    /// /dev/fuse or a ring failed; the server is still returned. The mount ends when the farewell
    /// is dropped.
    pub fn run(self) -> (S, io::Result<()>, Farewell) {
        let Session { server, channel, rings, carried } = self;
        let Rings { queues, rings } = rings;
        let readers = if rings.is_empty() {
            Readers::new(FEWEST_THREADS, most_readers())
        } else {
            // With rings, one reader is enough, since it reads only FORGET and INTERRUPT.
            Readers::new(1, 1).with_room(most_readers())
        };
        let shared = Shared::new(&server, &channel, readers, queues);
        let outcome = thread::scope(|scope| shared.serve(scope, rings, carried));
        let (outcome, last) = match outcome {
            Ok(last) => (Ok(()), last),
            Err(error) => (Err(error), None),
        };
        (server, outcome, Farewell { channel, last })
    }
}

/// Creates the rings if requests are to come by io_uring, and returns the transport.
fn choose(wanted: Transport, offer: &Offer) -> (Rings, Carried) {
    let by_read = |why| (Rings::default(), Carried::ByRead(why));
    match wanted {
        Transport::Read => by_read(ByRead::Wanted { has_rings: offer.has_ring() }),
        _ if !offer.has_ring() => by_read(ByRead::NotOffered),
        Transport::Auto | Transport::Ring => match by_ring::make() {
            Ok((rings, queues)) => (rings, Carried::ByRing(queues)),
            Err(error) => by_read(ByRead::Refused(error.to_string())),
        },
    }
}

impl<S: Service> Shared<'_, S> {
    /// Starts all threads, and waits until they have terminated.
    fn serve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        rings: Vec<(usize, Ring)>,
        carried: Carried,
    ) -> Ended {
        let pauses = thread::Builder::new().name("fuse-pause".into());
        // If this thread cannot start, changes are still committed at the commit interval.
        let _ = pauses.spawn_scoped(scope, || {
            while self.readers.wait_for_pause() {
                self.server.paused();
            }
        });
        let mut threads = Vec::new();
        // The server learns the transport before any thread serves a request, since a request may
        // ask for it.
        self.server.carried(&carried);
        if !rings.is_empty() {
            match self.start_rings(scope, rings) {
                Ok(None) => {}
                Ok(Some(why)) => {
                    let refused = Carried::ByRead(ByRead::Refused(why));
                    self.server.carried(&refused);
                    self.readers.enlarge(FEWEST_THREADS, most_readers());
                }
                Err(error) => {
                    let _ = self.end(threads);
                    return Err(error);
                }
            }
        }
        let start = |n| {
            let reader = thread::Builder::new().name(format!("fuse-{n}"));
            let reader = reader.spawn_scoped(scope, move || self.work(n));
            reader.map(|reader| threads.push(reader)).is_ok()
        };
        let mut seen = vec![Seen::default(); self.queues.len()];
        let enough = self.readers.watch(start, || self.look_at_rings(scope, &mut seen));
        let ended = self.end(threads);
        if !enough {
            return Err(io::Error::other("the host starts too few threads to serve with"));
        }
        ended
    }

    /// Makes all threads terminate, and returns the first error of a thread or, if there is none,
    /// the session's last request.
    fn end(&self, threads: Vec<ScopedJoinHandle<'_, Ended>>) -> Ended {
        self.readers.end();
        self.interrupt_rings();
        while !threads.iter().all(ScopedJoinHandle::is_finished) {
            // The signals are sent again and again, since a thread that is just about to call
            // read(2) misses a signal.
            wake::interrupt(self.readers.running());
            thread::sleep(Duration::from_millis(1));
        }
        // All threads are joined before the first error is returned.
        let panicked = |_| Err(io::Error::other("a serving thread panicked"));
        let join = |thread: ScopedJoinHandle<'_, Ended>| thread.join().unwrap_or_else(panicked);
        let mut ended: Vec<Ended> = threads.into_iter().map(join).collect();
        ended.append(&mut self.ring_ends.lock());
        ended.into_iter().try_fold(None, |last: Option<Last>, ended| Ok(last.or(ended?)))
    }
}

/// The reply to DESTROY, if that request came. The reply is sent when this value is dropped.
pub struct Farewell {
    channel: Channel,
    last: Option<Last>,
}

#[cfg(test)]
mod tests;

impl Drop for Farewell {
    fn drop(&mut self) {
        let mut outbox = Outbox::new();
        outbox.clear();
        match self.last.take() {
            None => {}
            Some(Last::Read(unique)) => self.channel.reply(unique, &mut outbox, None),
            Some(Last::Ring(mut entry)) => {
                entry.finish(&outbox, None);
                // If this fails, closing the descriptor has the effect of a reply.
                let _ = ring::answer(self.channel.as_fd(), &entry);
            }
        }
    }
}
