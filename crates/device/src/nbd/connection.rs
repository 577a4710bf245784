//! One connection in the transmission phase, shared by threads.
//!
//! A thread sends its request under one lock, and then waits for the reply. One of the waiting
//! threads reads the socket, hands the replies to their threads by cookie, and leaves the socket to
//! another one when it has its own. So there is always a thread that reads, and a server that waits
//! until its replies are taken cannot block a thread that sends.

use super::handshake::Export;
use super::wire::{Wire, timed_out};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Condvar, Mutex, Rank};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// The bit of the last chunk of a reply.
const DONE: u16 = 1;
/// Types of chunks.
const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const OFFSET_HOLE: u16 = 2;
/// The bit that all types of errors have.
const IS_ERROR: u16 = 1 << 15;
/// The longest chunk with an error: a text of 4096 bytes and numbers.
const MAX_ERROR: u32 = 8 << 10;

/// The most parts of the data of one reply: in the longest, one for each 512 bytes.
const MOST_PARTS: usize = 16 << 10;

/// Why the connections of a device ended. The first reason stays.
pub(super) type Broken = Arc<OnceLock<String>>;

/// Types of requests.
pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
pub(super) const FLUSH: u16 = 3;
pub(super) const TRIM: u16 = 4;
pub(super) const WRITE_ZEROS: u16 = 6;

/// A request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Request<'d> {
    pub(super) command: u16,
    /// Whether the reply is to come when the bytes are durable.
    pub(super) is_durable: bool,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// The bytes of a write.
    pub(super) data: &'d [u8],
}

impl Request<'_> {
    fn header(&self, cookie: u64) -> Vec<u8> {
        let flags = u16::from(self.is_durable).to_be_bytes();
        let command = self.command.to_be_bytes();
        let (cookie, offset) = (cookie.to_be_bytes(), self.offset.to_be_bytes());
        let (magic, len) = (REQUEST_MAGIC.to_be_bytes(), self.len.to_be_bytes());
        [&magic[..], &flags, &command, &cookie, &offset, &len].concat()
    }
}

/// A reply that is expected, or has come.
#[derive(Debug, Default)]
struct Reply {
    offset: u64,
    /// The bytes that a read asked for.
    data: Vec<u8>,
    /// How many of them have come, and which.
    covered: usize,
    parts: Vec<Range<usize>>,
    error: u32,
    is_complete: bool,
}

impl Reply {
    /// Returns the place of a part of the data.
    fn part(&mut self, offset: u64, len: u32) -> io::Result<&mut [u8]> {
        let wrong = || io::Error::other("it sent data that was not asked for");
        let start = offset.checked_sub(self.offset).and_then(|start| usize::try_from(start).ok());
        let start = start.ok_or_else(wrong)?;
        let end = start.checked_add(len as usize).filter(|end| *end > start).ok_or_else(wrong)?;
        let overlaps = |part: &Range<usize>| part.start < end && start < part.end;
        if self.parts.len() == MOST_PARTS || self.parts.iter().any(overlaps) {
            return Err(wrong());
        }
        self.covered += len as usize;
        self.parts.push(start..end);
        self.data.get_mut(start..end).ok_or_else(wrong)
    }

    fn result(self) -> io::Result<Vec<u8>> {
        match i32::try_from(self.error) {
            Ok(0) if self.covered == self.data.len() => Ok(self.data),
            Ok(0) => Err(io::Error::other("the NBD server left out a part of the data")),
            // The numbers that the protocol defines are those of Linux.
            Ok(known @ (1 | 5 | 12 | 22 | 28 | 75 | 95 | 108)) => {
                Err(io::Error::from_raw_os_error(known))
            }
            _ => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }
}

#[derive(Debug, Default)]
struct Replies {
    expected: HashMap<u64, Reply>,
    last_cookie: u64,
    /// Whether a thread reads the socket.
    is_read: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    wire: Wire,
    is_structured: bool,
    limit: Duration,
    broken: Broken,
    /// Whether all requests were sent whole. After a part of one, more bytes would be taken for the
    /// rest of it.
    sending: Mutex<bool>,
    replies: Mutex<Replies>,
    arrived: Condvar,
}

impl Connection {
    pub(super) fn new(wire: Wire, export: &Export, limit: Duration, broken: Broken) -> Connection {
        Connection {
            wire,
            is_structured: export.is_structured,
            limit,
            broken,
            sending: Mutex::new(Rank::Connection, true),
            replies: Mutex::new(Rank::Connection, Replies::default()),
            arrived: Condvar::new(),
        }
    }

    pub(super) fn check(&self) -> io::Result<()> {
        match self.broken.get() {
            None => Ok(()),
            Some(why) => Err(io::Error::new(
                io::ErrorKind::NotConnected,
                format!("the connection to the NBD server was lost: {why}"),
            )),
        }
    }

    fn fail(&self, error: &io::Error) {
        let _ = self.broken.set(error.to_string());
    }

    /// Sends a request, waits for the reply, and returns the bytes that a read asked for.
    pub(super) fn run(&self, request: &Request<'_>) -> io::Result<Vec<u8>> {
        self.check()?;
        let len = if request.command == READ { request.len as usize } else { 0 };
        let reply = Reply { offset: request.offset, data: vec![0; len], ..Reply::default() };
        let cookie = {
            let mut replies = self.replies.lock_in_order(2);
            replies.last_cookie += 1;
            let cookie = replies.last_cookie;
            replies.expected.insert(cookie, reply);
            cookie
        };
        {
            // The server answers for the time since then, and not for other requests before.
            let mut is_whole = self.sending.lock_in_order(1);
            if *is_whole {
                let deadline = Instant::now() + self.limit;
                let sent = self.wire.write(&request.header(cookie), deadline);
                let sent = sent.and_then(|()| self.wire.write(request.data, deadline));
                *is_whole = sent.inspect_err(|error| self.fail(error)).is_ok();
            }
        }
        let deadline = Instant::now() + self.limit;
        let mut replies = self.replies.lock_in_order(2);
        loop {
            if replies.expected.get(&cookie).is_some_and(|reply| reply.is_complete)
                && let Some(reply) = replies.expected.remove(&cookie)
            {
                // With the one the server ends, and after the other it is not to be believed.
                let is_last = reply.error == libc::ESHUTDOWN as u32
                    || reply.error == 0 && reply.covered != reply.data.len();
                return reply.result().inspect_err(|error| {
                    if is_last {
                        self.fail(error)
                    }
                });
            }
            self.check()?;
            let rest = deadline.saturating_duration_since(Instant::now());
            if replies.is_read && rest.is_zero() {
                self.fail(&timed_out());
            } else if replies.is_read {
                self.arrived.wait_for(&mut replies, rest);
            } else {
                // Even after the limit what has come is taken: the process may have been stopped.
                replies.is_read = true;
                drop(replies);
                if let Err(error) = self.receive(deadline) {
                    self.fail(&error);
                }
                replies = self.replies.lock_in_order(2);
                replies.is_read = false;
                self.arrived.notify_all();
            }
        }
    }

    /// Receives a simple reply, or a chunk of a structured one.
    fn receive(&self, deadline: Instant) -> io::Result<()> {
        let wire = &self.wire;
        let (cookie, reply) = match u32::from_be_bytes(wire.array(deadline)?) {
            SIMPLE_MAGIC => {
                let error = u32::from_be_bytes(wire.array(deadline)?);
                let (cookie, mut reply) = self.expected(wire.array(deadline)?)?;
                (reply.error, reply.is_complete) = (error.max(reply.error), true);
                if error == 0 && !reply.data.is_empty() {
                    if self.is_structured {
                        return Err(io::Error::other("it sent a simple reply to a read"));
                    }
                    wire.read(&mut reply.data, deadline)?;
                    reply.covered = reply.data.len();
                }
                (cookie, reply)
            }
            CHUNK_MAGIC if self.is_structured => {
                let flags = u16::from_be_bytes(wire.array(deadline)?);
                let kind = u16::from_be_bytes(wire.array(deadline)?);
                let (cookie, mut reply) = self.expected(wire.array(deadline)?)?;
                let len = u32::from_be_bytes(wire.array(deadline)?);
                reply.is_complete = flags & DONE != 0;
                match kind {
                    NONE if len == 0 && reply.is_complete => {}
                    OFFSET_DATA if len > 8 => {
                        let offset = u64::from_be_bytes(wire.array(deadline)?);
                        wire.read(reply.part(offset, len - 8)?, deadline)?;
                    }
                    OFFSET_HOLE if len == 12 => {
                        let offset = u64::from_be_bytes(wire.array(deadline)?);
                        let size = u32::from_be_bytes(wire.array(deadline)?);
                        reply.part(offset, size)?.fill(0);
                    }
                    _ if kind & IS_ERROR != 0 && (6..=MAX_ERROR).contains(&len) => {
                        // A chunk with an error is an error, whatever its number.
                        reply.error = u32::from_be_bytes(wire.array(deadline)?).max(1);
                        wire.read(&mut vec![0; len as usize - 4], deadline)?;
                    }
                    _ => {
                        let what = format!("it sent a chunk of type {kind} with {len} bytes");
                        return Err(io::Error::other(what));
                    }
                }
                (cookie, reply)
            }
            other => return Err(io::Error::other(format!("it sent {other:#x} for a reply"))),
        };
        self.replies.lock_in_order(2).expected.insert(cookie, reply);
        Ok(())
    }

    /// Takes the reply with this cookie out of those that are expected.
    fn expected(&self, cookie: [u8; 8]) -> io::Result<(u64, Reply)> {
        let cookie = u64::from_be_bytes(cookie);
        let mut replies = self.replies.lock_in_order(2);
        let found = replies.expected.remove(&cookie).filter(|reply| !reply.is_complete);
        let found = found.ok_or_else(|| io::Error::other("it answered what was not asked"))?;
        Ok((cookie, found))
    }

    /// Tells the server that nothing more comes.
    pub(super) fn end(&self) {
        let end = Request { command: DISCONNECT, ..Request::default() };
        if self.check().is_ok() {
            let _ = self.wire.write(&end.header(0), Instant::now());
        }
    }
}
