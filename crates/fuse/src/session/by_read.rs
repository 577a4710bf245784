//! A thread that reads requests from /dev/fuse and serves them.

use super::pace::Pace;
use super::readers::Join;
use super::shared::{Ended, Last, Shared};
use super::wake;
use crate::protocol::abi::opcode;
use crate::protocol::{Outbox, Request};
use crate::service::{Answer, Service};
use crate::transport::Inbox;
use std::time::Instant;

impl<S: Service> Shared<'_, S> {
    /// Runs reader `me` until the session is over.
    pub(super) fn work(&self, me: usize) -> Ended {
        self.readers.runs_as(me, wake::this_thread());
        let ended = self.read_and_answer(me);
        self.readers.runs_as(me, 0);
        ended
    }

    fn read_and_answer(&self, me: usize) -> Ended {
        let (mut inbox, mut outbox) = (Inbox::new(), Outbox::new());
        let mut pace = Pace::new();
        loop {
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
        match self.server.serve(request, outbox, self.channel) {
            Ok(Answer::Reply) => self.channel.reply(unique, outbox, None),
            Ok(Answer::Silence) => {}
            Err(error) => self.channel.reply(unique, outbox, Some(error)),
        }
    }
}
