//! What stands behind a session: whatever answers requests.

use crate::protocol::{Errno, Outbox, Request, Wishes};
use crate::transport::{Carried, Channel};

/// Whether a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// What is in the outbox goes to the kernel.
    Reply,
    /// The kernel waits for no reply.
    Silence,
}

/// Answers the requests of one mount, from several threads. [`crate::Server`] is the one that serves
/// ext4; the example `floor` measures what a session costs without a file system behind it.
pub trait Service: Sync {
    /// What is wanted of the kernel.
    fn wishes(&self) -> Wishes {
        Wishes::default()
    }

    /// What kernel and session have agreed on: bits of [`crate::abi::init`].
    fn agreed(&mut self, _flags: u64) {}

    /// How requests come, before the first one.
    fn carried(&self, _carried: &Carried) {}

    /// Whether a request of this kind may have the kernel send others and wait for them: it is never
    /// served on a thread that others depend on.
    fn waits_for_kernel(&self, _opcode: u32) -> bool {
        false
    }

    /// No request came for a moment, after there were some. Requests are served meanwhile.
    fn paused(&self) {}

    /// Does what `request` asks, leaving the reply in `outbox`.
    ///
    /// # Errors
    /// What the kernel is to be told.
    fn serve(
        &self,
        request: Request<'_>,
        outbox: &mut Outbox,
        kernel: &Channel,
    ) -> Result<Answer, Errno>;
}
