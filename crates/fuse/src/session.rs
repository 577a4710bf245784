//! A mount being served: the first handshake, then the threads that read and answer.

use crate::abi::opcode;
use crate::baton::{Baton, Turn};
use crate::buffer::{Inbox, Outbox};
use crate::channel::Channel;
use crate::errno::Errno;
use crate::handshake::agree;
use crate::seat::{Seat, Watchdog};
use crate::service::{Answer, Service, Weight};
use rustix::fd::OwnedFd;
use std::io;
use std::thread;

/// Threads that serve; all but one of them may wait for the device at once.
pub const THREADS: usize = 16;

/// A connection that has shaken hands.
pub struct Session<S> {
    server: S,
    channel: Channel,
    baton: Baton,
    watchdog: Watchdog,
}

impl<S: Service> Session<S> {
    /// Takes over `device`, the descriptor that the mount was made with, and agrees with the kernel
    /// on how to talk.
    ///
    /// # Errors
    /// The kernel is too old, or went away.
    pub fn start(device: OwnedFd, server: S) -> io::Result<Session<S>> {
        let channel = Channel::new(device);
        let (mut inbox, mut outbox) = (Inbox::new(), Outbox::new());
        loop {
            let Some(mut request) = channel.receive(&mut inbox)? else {
                return Err(io::Error::other("unmounted before it was served"));
            };
            let unique = request.header.unique;
            if request.header.opcode != opcode::INIT {
                channel.reply(unique, &mut outbox, Some(Errno::IO));
                continue;
            }
            return match agree(&mut request, &mut outbox, server.caching()) {
                Ok(()) => {
                    channel.reply(unique, &mut outbox, None);
                    let baton = Baton::new(THREADS);
                    Ok(Session { server, channel, baton, watchdog: Watchdog::default() })
                }
                Err(error) => {
                    channel.reply(unique, &mut outbox, Some(error));
                    Err(io::Error::other("this kernel's FUSE is too old (Linux 5.12 is needed)"))
                }
            };
        }
    }

    /// Serves until the file system is unmounted, and gives the server back to be closed.
    ///
    /// # Errors
    /// /dev/fuse failed; the server is still given back.
    pub fn run(self) -> (S, io::Result<()>) {
        let this = &self;
        let outcome = thread::scope(|scope| {
            let watchdog =
                thread::Builder::new().name("fuse-watchdog".into()).spawn_scoped(scope, || {
                    this.watchdog.is_me();
                    this.baton.watch();
                });
            let workers: Vec<_> = (0..THREADS)
                .map_while(|n| {
                    thread::Builder::new()
                        .name(format!("fuse-{n}"))
                        .spawn_scoped(scope, move || this.work(n))
                        .ok()
                })
                .collect();
            if watchdog.is_err() || workers.is_empty() {
                this.baton.end();
                return Err(io::Error::other("no threads to serve with"));
            }
            let mut outcome = Ok(());
            for worker in workers {
                let ended = worker.join();
                outcome =
                    outcome
                        .and(ended.unwrap_or_else(|_| {
                            Err(io::Error::other("a serving thread panicked"))
                        }));
            }
            outcome
        });
        (self.server, outcome)
    }

    /// The life of thread `me`.
    fn work(&self, me: usize) -> io::Result<()> {
        let (mut inbox, mut outbox) = (Inbox::new(), Outbox::new());
        let mut seat = Seat::new(&self.watchdog);
        while let Some(mut client) = self.baton.take(me) {
            seat.take(&client);
            loop {
                let request = match self.channel.receive(&mut inbox) {
                    Ok(Some(request)) => request,
                    Ok(None) => {
                        self.baton.end();
                        return Ok(());
                    }
                    Err(error) => {
                        self.baton.end();
                        return Err(error);
                    }
                };
                let weight = self.server.weight(&request);
                if weight == Weight::Bulk {
                    seat.moved_much(&mut client);
                } else {
                    seat.asked(&mut client, request.header.pid);
                }
                let keeps = match weight {
                    Weight::Quick => true,
                    Weight::Brief => client.is_alone(),
                    Weight::Slow | Weight::Bulk => false,
                };
                if !keeps {
                    self.baton.pass(client);
                    if weight == Weight::Bulk {
                        seat.leave();
                    }
                    self.answer(request, &mut outbox);
                    break;
                }
                let serving = self.baton.begin();
                self.answer(request, &mut outbox);
                if self.baton.done(serving) == Turn::Lost {
                    break;
                }
            }
        }
        Ok(())
    }

    fn answer(&self, request: crate::request::Request<'_>, outbox: &mut Outbox) {
        let unique = request.header.unique;
        match self.server.serve(request, outbox, &self.channel) {
            Ok(Answer::Reply) => self.channel.reply(unique, outbox, None),
            Ok(Answer::Silence) => {}
            Err(error) => self.channel.reply(unique, outbox, Some(error)),
        }
    }
}
