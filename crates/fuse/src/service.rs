//! What stands behind a session: whatever answers requests.

use crate::buffer::Outbox;
use crate::channel::Channel;
use crate::errno::Errno;
use crate::request::Request;

/// Whether a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// What is in the outbox goes to the kernel.
    Reply,
    /// The kernel waits for no reply.
    Silence,
}

/// What the kernel does with what programs write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caching {
    /// It keeps pages and sends them later: many small writes cost one request. Then size and times of
    /// regular files are its affair, and it sends its own after each unlink, link and rename of one.
    #[default]
    Writeback,
    /// Each write(2) is a request, and so is each page that was changed through a mapping.
    Writethrough,
}

/// Answers the requests of one mount, from several threads. [`crate::Server`] is the one that serves
/// ext4; the example `floor` measures what a session costs without a file system behind it.
pub trait Service: Sync {
    /// What the kernel is asked to do with what programs write.
    fn caching(&self) -> Caching {
        Caching::default()
    }

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
