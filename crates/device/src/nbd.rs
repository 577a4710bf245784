//! A client of network block devices (NBD), as doc/proto.md of NetworkBlockDevice/nbd defines them.
//!
//! *Durability*: a connection that breaks, stalls or lies is not made again, because the server may
//! have lost what was written since the last flush. From then on, every request fails, as after a
//! failed flush. Where the server says that a flush reaches the writes of all connections, there
//! are several, all made at the start and to one address: another one may be another server.

mod connection;
mod handshake;
mod uri;
mod wire;

pub use uri::is_uri;
pub(crate) use uri::{Address, FORM};

use crate::device::Access;
use connection::{Broken, Connection, FLUSH, READ, Request, TRIM, WRITE, WRITE_ZEROS};
use handshake::{Can, Export};
use lanefs_lanes::{Lane, Process};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};
use wire::Wire;

/// The number of connections to a server that allows several.
const CONNECTIONS: usize = 4;
/// How long a further connection may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of one request. Servers that state no limit take up to 32 MiB.
const MAX_REQUEST: usize = 8 << 20;

/// An export of a server, open.
#[derive(Debug)]
pub(crate) struct Nbd {
    connections: Vec<Connection>,
    export: Export,
    /// The process that made the connections.
    opener: Process,
}

impl Nbd {
    /// Connects to a server. Also returns a handle of the first socket.
    pub(crate) fn open(address: &Address, access: Access) -> io::Result<(Nbd, File)> {
        let broken = Broken::default();
        let connect = |peer, limit| {
            let wire = Wire::connect(address, peer, limit)?;
            let export = Export::go(&wire, &address.export, Instant::now() + limit)?;
            Ok::<_, io::Error>((wire, export))
        };
        let (wire, export) = connect(None, address.limit)?;
        if access == Access::ReadWrite {
            if export.can(Can::OnlyRead) {
                let why = "the NBD server exports it read-only";
                return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why));
            }
            if !export.can(Can::Flush) && !export.can(Can::WriteDurably) {
                let why = "the NBD server has no flush, so nothing written would be certain";
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
        }
        let (socket, peer) = (wire.file()?, wire.peer);
        let mut connections = vec![(wire, export)];
        while export.can(Can::ShareFlushes) && connections.len() < CONNECTIONS {
            // A server may allow fewer, and leave the others unanswered.
            match connect(peer, address.limit.min(PATIENCE)) {
                Ok(more) if more.1 == export => connections.push(more),
                _ => break,
            }
        }
        let connections = connections
            .into_iter()
            .map(|(wire, export)| Connection::new(wire, &export, address.limit, broken.clone()));
        let (connections, opener) = (connections.collect(), Process::this());
        Ok((Nbd { connections, export, opener }, socket))
    }

    pub(crate) fn len(&self) -> u64 {
        self.export.size
    }

    fn run(&self, request: &Request<'_>) -> io::Result<Vec<u8>> {
        // A child of fork(2) would take its parent's replies.
        if !self.opener.is_this() {
            return Err(io::Error::other("opened by the parent process, before fork(2)"));
        }
        let lane = Lane::current().index() % self.connections.len().max(1);
        match self.connections.get(lane) {
            Some(connection) => connection.run(request),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Fills `buf` from `offset`. A range beyond the end, as a partition table may name it, is not
    /// asked for.
    pub(crate) fn read(&self, mut offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for part in buf.chunks_mut(MAX_REQUEST) {
            let len = part.len() as u32;
            let found = self.run(&Request { command: READ, offset, len, ..Request::default() })?;
            part.copy_from_slice(&found);
            offset += u64::from(len);
        }
        Ok(())
    }

    /// Writes the buffers one after another; the caller has checked the range here and below. If
    /// `durable`, flushes them too.
    pub(crate) fn write(&self, mut offset: u64, bufs: &[&[u8]], durable: bool) -> io::Result<()> {
        let is_durable = self.export.can(Can::WriteDurably) && (durable || self.writes_through());
        // Each request takes a round trip.
        let joined = if let [one] = bufs { Cow::Borrowed(*one) } else { bufs.concat().into() };
        for data in joined.chunks(MAX_REQUEST) {
            let len = data.len() as u32;
            self.run(&Request { command: WRITE, is_durable, offset, len, data })?;
            offset += u64::from(len);
        }
        if durable && !is_durable { self.flush() } else { Ok(()) }
    }

    /// Returns whether each write is durable, because the server has no flush.
    fn writes_through(&self) -> bool {
        !self.export.can(Can::Flush)
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        if self.writes_through() {
            return self.connections.iter().try_for_each(Connection::check);
        }
        self.run(&Request { command: FLUSH, ..Request::default() }).map(drop)
    }

    /// Zeroes bytes. Returns false if the server cannot, so that the caller must write zeros.
    pub(crate) fn write_zeros(&self, offset: u64, len: u64) -> io::Result<bool> {
        self.cover((Can::WriteZeros, WRITE_ZEROS), offset, len)
    }

    /// Discards bytes, if the server can.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.cover((Can::Trim, TRIM), offset, len).map(drop)
    }

    fn cover(&self, (can, command): (Can, u16), at: u64, len: u64) -> io::Result<bool> {
        let is_durable = self.writes_through();
        for offset in (at..at + len).step_by(MAX_REQUEST) {
            let len = (at + len - offset).min(MAX_REQUEST as u64) as u32;
            if !self.export.can(can) {
                return Ok(false);
            }
            let done = self.run(&Request { command, is_durable, offset, len, data: &[] });
            // Not every server that offers it can do it.
            match done.map_err(|error| (error.raw_os_error(), error)) {
                Err((Some(libc::EOPNOTSUPP | libc::EINVAL), _)) => return Ok(false),
                Err((_, error)) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(true)
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        if self.opener.is_this() {
            self.connections.iter().for_each(Connection::end);
        }
    }
}
