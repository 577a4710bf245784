//! A socket on which nothing waits without a limit.

use super::uri::{Address, Listener};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A connected socket.
#[derive(Debug)]
pub(super) struct Wire {
    socket: OwnedFd,
    /// The address that answered, of those that the host's name has.
    pub(super) peer: Option<SocketAddr>,
}

impl Wire {
    /// Connects to a server; with `peer` to the one at this address.
    pub(super) fn connect(
        address: &Address,
        peer: Option<SocketAddr>,
        limit: Duration,
    ) -> io::Result<Wire> {
        let (host, port) = match &address.listener {
            Listener::Unix(path) => {
                // A server whose queue is full is an error at once.
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                connect(&socket, &SocketAddrUnix::new(path)?)?;
                return Ok(Wire { socket, peer: None });
            }
            Listener::Tcp(host, port) => (host.as_str(), *port),
        };
        let mut last = io::Error::other("the host has no address");
        let places = match peer {
            Some(peer) => vec![peer],
            None => (host, port).to_socket_addrs()?.collect(),
        };
        for place in places {
            match TcpStream::connect_timeout(&place, limit) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_nonblocking(true)?;
                    return Ok(Wire { socket: socket.into(), peer: Some(place) });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns another handle of the socket.
    pub(super) fn file(&self) -> io::Result<File> {
        Ok(self.socket.try_clone()?.into())
    }

    /// Fills `bytes`.
    pub(super) fn read(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        self.pass(bytes.len(), (PollFlags::IN, deadline), |done| {
            let rest = bytes.get_mut(done..).unwrap_or_default();
            recv(&self.socket, rest, RecvFlags::empty()).map(|(read, _)| read)
        })
    }

    /// Reads a number of the protocol's byte order.
    pub(super) fn array<const N: usize>(&self, deadline: Instant) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(&mut bytes, deadline)?;
        Ok(bytes)
    }

    /// Sends all `bytes`.
    pub(super) fn write(&self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.pass(bytes.len(), (PollFlags::OUT, deadline), |done| {
            send(&self.socket, bytes.get(done..).unwrap_or_default(), SendFlags::NOSIGNAL)
        })
    }

    fn pass(
        &self,
        len: usize,
        (ready, deadline): (PollFlags, Instant),
        mut step: impl FnMut(usize) -> rustix::io::Result<usize>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            match step(done) {
                Ok(0) => return Err(io::Error::other("the server closed it")),
                Ok(passed) => done += passed,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let rest = deadline.saturating_duration_since(Instant::now());
                    if rest.is_zero() {
                        return Err(timed_out());
                    }
                    let rest = Timespec::try_from(rest).map_err(io::Error::other)?;
                    match poll(&mut [PollFd::new(&self.socket, ready)], Some(&rest)) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Returns the error of a server that does not answer in time.
pub(super) fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer within the time limit")
}
