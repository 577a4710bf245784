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

/// Whether the kernel asks before it opens a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Opens {
    /// OPEN and RELEASE for each open file.
    #[default]
    Asked,
    /// Neither: opening and closing cost no request, and the server can refuse no open.
    NotAsked,
}

/// What the kernel does with asynchronous direct I/O (io_submit(2), io_uring).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AsyncDirect {
    /// The submitting thread waits for each request. The kernel then drops the cached pages of a direct
    /// write after it, too.
    #[default]
    Waits,
    /// Many requests are in flight. The kernel drops cached pages before the write only, so that one read
    /// meanwhile stays in its cache, stale.
    InFlight,
}

/// What a mount wants of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    /// What it does with what programs write.
    pub caching: Caching,
    /// Whether it asks before it opens.
    pub opens: Opens,
    /// What it does with asynchronous direct I/O.
    pub async_direct: AsyncDirect,
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
