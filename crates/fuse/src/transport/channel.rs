//! The connection to the kernel: whole requests in, whole replies out.

use crate::protocol::abi::{NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};
use crate::protocol::{Errno, Outbox, Request};
use crate::transport::inbox::Inbox;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::{self, IoSlice};
use zerocopy::IntoBytes;

/// An open /dev/fuse that belongs to a mount. Threads share it.
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
    /// Takes over the descriptor that the mount was made with.
    pub fn new(device: OwnedFd) -> Channel {
        Channel { device }
    }

    /// Waits for a request; `None` once the file system is unmounted, or after a signal if `is_over`.
    ///
    /// # Errors
    /// The device failed, or said what is not a request.
    pub fn receive<'b>(
        &self,
        inbox: &'b mut Inbox,
        is_over: impl Fn() -> bool,
    ) -> io::Result<Option<Request<'b>>> {
        use rustix::io::Errno as Os;
        let len = loop {
            match rustix::io::read(self.device.as_fd(), inbox.room()) {
                Ok(len) => break len,
                // NOENT: the caller of that request was killed before it was read.
                Err(Os::INTR) if is_over() => return Ok(None),
                Err(Os::INTR | Os::AGAIN | Os::NOENT) => {}
                Err(Os::NODEV | Os::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        Request::new(inbox.filled(len)).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Answers request `unique` with what is in `outbox`, or with an error. An answer that nobody
    /// waits for any more (the connection was aborted) is no error.
    pub fn reply(&self, unique: u64, outbox: &mut Outbox, error: Option<Errno>) {
        let reply = outbox.finish(unique, error.map(|e| e.0));
        while let Err(rustix::io::Errno::INTR) = rustix::io::write(self.device.as_fd(), reply) {}
    }

    /// Has the kernel ask again for the attributes of a node.
    pub fn forget_attributes(&self, node: u64) {
        self.invalidate(NotifyInvalInodeOut { ino: node, off: -1, len: 0 });
    }

    /// Has the kernel write the dirty pages of a node to us, and drop its pages. Returns when that
    /// is done, so another thread must be there to serve the writes.
    pub fn flush_pages(&self, node: u64) {
        self.invalidate(NotifyInvalInodeOut { ino: node, off: 0, len: 0 });
    }

    /// The kernel may not know the node any more; then there is nothing to do.
    fn invalidate(&self, body: NotifyInvalInodeOut) {
        let len = size_of::<OutHeader>() + size_of::<NotifyInvalInodeOut>();
        let header = OutHeader { len: len as u32, error: NOTIFY_INVAL_INODE, unique: 0 };
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())];
        while let Err(rustix::io::Errno::INTR) = rustix::io::writev(self.device.as_fd(), &parts) {}
    }
}
