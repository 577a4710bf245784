//! A thread that reads requests from /dev/fuse and serves them.

use super::clients::{Clients, Wanted};
use super::look::Look;
use super::pace::Pace;
use super::readers::Join;
use super::shared::{Ended, Last, Shared};
use super::wake;
use crate::protocol::abi::opcode;
use crate::protocol::{Outbox, Request};
use crate::service::{Answer, Service};
use crate::transport::Inbox;
use lanefs_lanes::sync::atomic::Ordering;
use std::time::Instant;

impl<S: Service> Shared<'_, S> {
    /// Runs reader `me` until the session is over.
    pub(super) fn work(&self, me: usize) -> Ended {
        if !self.readers.wait_for_start(me) {
            return Ok(None);
        }
        self.readers.runs_as(me, wake::this_thread());
        let ended = self.read_and_answer(me);
        self.readers.runs_as(me, 0);
        ended
    }

    fn read_and_answer(&self, me: usize) -> Ended {
        let (mut inbox, mut outbox) = (Inbox::new(), Outbox::new());
        let (mut pace, mut clients, mut look) = (Pace::new(), Clients::new(), Look::new());
        // If there are rings, this thread reads only FORGET and INTERRUPT. No client waits for
        // these, so the thread sleeps at once instead of looking for the next request.
        let beside_rings = !self.queues.is_empty() && !self.without_rings.load(Ordering::Acquire);
        loop {
            if !beside_rings && self.readers.is_alone() {
                look.look(|| self.channel.has_request());
            }
            let request = match self.channel.receive(&mut inbox, || self.readers.is_over()) {
                Ok(Some(request)) if request.header.opcode == opcode::DESTROY => {
                    self.readers.end();
                    return Ok(Some(Last::Read(request.header.unique)));
                }
                Ok(Some(request)) => request,
                ended => {
                    self.readers.end();
                    return ended.map(|_| None);
                }
            };
            let (opcode, begun) = (request.header.opcode, Instant::now());
            let wanted = clients.saw(request.header.pid);
            if wanted == Wanted::OneMore {
                self.readers.grow();
            }
            let stays = if pace.is_slow(opcode) || self.server.waits_for_kernel(opcode) {
                self.readers.leave(me);
                self.answer(request, &mut outbox);
                false
            } else {
                let serving = self.readers.begin(me);
                self.answer(request, &mut outbox);
                self.readers.done(me, serving)
            };
            pace.took(opcode, begun.elapsed());
            let next = match wanted {
                _ if !stays => self.readers.join(me),
                Wanted::OneFewer => self.readers.shrink(me),
                Wanted::AsMany | Wanted::OneMore => continue,
            };
            match next {
                Join::Reader => continue,
                Join::Called => {}
                Join::End => return Ok(None),
                Join::Idle => {
                    (inbox, outbox) = (Inbox::new(), Outbox::new());
                    if self.readers.park(me, false) == Join::End {
                        return Ok(None);
                    }
                }
            }
            clients = Clients::new();
        }
    }

    fn answer(&self, request: Request<'_>, outbox: &mut Outbox) {
        let unique = request.header.unique;
        match self.server.serve(request, outbox, self.channel) {
            Ok(Answer::Reply) => self.channel.reply(unique, outbox, None),
            Ok(Answer::Silence) => {}
            Err(error) => self.channel.reply(unique, outbox, Some(error)),
        }
    }
}
