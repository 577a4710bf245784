//! The interface between a session and the code that serves its requests.

use crate::protocol::{Errno, Outbox, Request, Wishes};
use crate::transport::{Carried, Channel};

/// Whether a request gets a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The session sends the reply in the outbox to the kernel.
    Reply,
    /// The kernel waits for no reply.
    Silence,
}

/// Serves the requests of one mount, on several threads. [`crate::Server`] serves an ext4 file
/// system; the example `floor` measures the cost of a session without a file system.
pub trait Service: Sync {
    /// Returns the kernel features that the service wants.
    fn wishes(&self) -> Wishes {
        Wishes::default()
    }

    /// Receives the features that kernel and session agreed on: bits of [`crate::abi::init`].
    fn agreed(&mut self, _flags: u64) {}

    /// Receives the transport by which requests come, before the first request. The session calls
    /// this again if io_uring turns out not to work.
    fn carried(&self, _carried: &Carried) {}

    /// Returns whether a request of this kind may have to wait for further requests, which the
    /// kernel sends because of it. Such a request is never served on a thread that must serve those
    /// further requests.
    fn waits_for_kernel(&self, _opcode: u32) -> bool {
        false
    }

    /// The session calls this once each time that requests stop coming for a moment. During the
    /// call, other threads may serve new requests.
    fn paused(&self) {}

    /// Serves `request` and writes the reply to `outbox`.
    ///
    /// # Errors
    /// The error number for the kernel.
    fn serve(
        &self,
        request: Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Result<Answer, Errno>;
}
