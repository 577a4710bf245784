//! What a mount wants of the kernel, agreed on in the handshake.

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

/// How requests are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// By the best that the kernel offers: io_uring where it is switched on.
    #[default]
    Auto,
    /// By read(2) of /dev/fuse.
    Read,
    /// As [`Transport::Auto`]; the mount warns if it is not by io_uring.
    Ring,
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
    /// How its requests come.
    pub transport: Transport,
}
