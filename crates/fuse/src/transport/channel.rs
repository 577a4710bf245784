//! The connection to the kernel: reads whole requests, writes whole replies.

use crate::protocol::abi::{NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};
use crate::protocol::{Errno, Outbox, Request};
use crate::transport::inbox::Inbox;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::{self, IoSlice};
use zerocopy::IntoBytes;

/// An open /dev/fuse that belongs to a mount. Several threads share it.
#[derive(Debug)]
pub struct Channel {
    device: OwnedFd,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Channel {
    /// Takes the descriptor of the mount.
    pub fn new(device: OwnedFd) -> Channel {
        Channel { device }
    }

    /// Waits for a request and returns it. Returns `None` after an unmount, or after a signal if
    /// `is_over` returns true.
    ///
    /// # Errors
    /// The device failed, or returned malformed data.
    pub fn receive<'b>(
        &self,
        inbox: &'b mut Inbox,
        is_over: impl Fn() -> bool,
    ) -> io::Result<Option<Request<'b>>> {
        use rustix::io::Errno as Os;
        let len = loop {
            match rustix::io::read(self.device.as_fd(), inbox.room()) {
                Ok(len) => break len,
                // NOENT means that the process that made the request was killed before the request
                // was read.
                Err(Os::INTR) if is_over() => return Ok(None),
                Err(Os::INTR | Os::AGAIN | Os::NOENT) => {}
                Err(Os::NODEV | Os::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        Request::new(inbox.filled(len)).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Returns true if a request can be read or the connection is closed.
    pub fn has_request(&self) -> bool {
        let mut device = [PollFd::new(&self.device, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut device, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Replies to request `unique` with the contents of `outbox`, or with an error. It is not an
    /// error if the kernel has discarded the request because the connection was aborted.
    pub fn reply(&self, unique: u64, outbox: &mut Outbox, error: Option<Errno>) {
        let reply = outbox.finish(unique, error.map(|e| e.0));
        while let Err(rustix::io::Errno::INTR) = rustix::io::write(self.device.as_fd(), reply) {}
    }

    /// Makes the kernel drop its cached attributes of a node.
    pub fn forget_attributes(&self, node: u64) {
        self.invalidate(NotifyInvalInodeOut { ino: node, off: -1, len: 0 });
    }

    /// Makes the kernel send the dirty pages of a node and drop its pages. Returns when the kernel
    /// has done both, so another thread must serve the writes.
    pub fn flush_pages(&self, node: u64) {
        self.invalidate(NotifyInvalInodeOut { ino: node, off: 0, len: 0 });
    }

    /// Sends a notification. If the kernel does not know the node any more, nothing needs to be
    /// done.
    fn invalidate(&self, body: NotifyInvalInodeOut) {
        let len = size_of::<OutHeader>() + size_of::<NotifyInvalInodeOut>();
        let header = OutHeader { len: len as u32, error: NOTIFY_INVAL_INODE, unique: 0 };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())];
        while let Err(rustix::io::Errno::INTR) = rustix::io::writev(self.device.as_fd(), &parts) {}
    }
}
