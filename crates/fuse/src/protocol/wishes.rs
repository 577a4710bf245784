//! The kernel features that a mount wants. The handshake asks the kernel for them.

/// How the kernel caches the data that programs write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caching {
    /// The kernel caches pages and sends them later: many small writes cost one request. With this
    /// cache the kernel owns the size and times of regular files, and sends its own times after
    /// each unlink, link and rename of a regular file.
    #[default]
    Writeback,
    /// Each write(2) is a request. Each page that was changed through a mapping is a request too.
    Writethrough,
}

/// Whether the kernel sends a request when a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Opens {
    /// The kernel sends OPEN and RELEASE for each open file.
    #[default]
    Asked,
    /// The kernel sends neither OPEN nor RELEASE. So opening and closing a file cost no request,
    /// but the server cannot refuse an open.
    NotAsked,
}

/// How the kernel runs asynchronous direct I/O (io_submit(2), io_uring).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AsyncDirect {
    /// The submitting thread waits for each request. The kernel then drops the cached pages of the
    /// range both before and after a direct write.
    #[default]
    Waits,
    /// Many requests are in flight. The kernel drops cached pages only before a direct write, so a
    /// page that is read during the write stays in the cache with the old data. The server cannot
    /// drop the page later, because `NOTIFY_INVAL_INODE` waits for pages whose requests may be
    /// queued behind the writes.
    InFlight,
}

/// The wanted transport of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// The best that the kernel offers: io_uring where root enabled it, otherwise read(2).
    #[default]
    Auto,
    /// read(2) of /dev/fuse.
    Read,
    /// Like [`Transport::Auto`], but the mount warns if the transport is not io_uring.
    Ring,
}

/// Where permissions are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checks {
    /// The kernel checks modes and access control lists (`default_permissions`), by the ids in the
    /// server's replies. The kernel may cache names.
    #[default]
    ByKernel,
    /// The server checks permissions. The kernel admits only the owner of the mount, who may look
    /// up every name, so the kernel may cache names.
    ByServer,
    /// The server checks permissions, for several users. The kernel would walk through a cached
    /// name without asking the server, so the kernel must not cache names.
    ByServerEachName,
}

/// The precision of the times that inodes store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Times {
    /// Nanoseconds.
    #[default]
    Fine,
    /// Whole seconds.
    Seconds,
}

/// The kernel features that a mount wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    /// How the kernel caches written data.
    pub caching: Caching,
    /// Whether the kernel sends a request for each open.
    pub opens: Opens,
    /// How the kernel runs asynchronous direct I/O.
    pub async_direct: AsyncDirect,
    /// The transport of requests.
    pub transport: Transport,
    /// Where permissions are checked.
    pub checks: Checks,
    /// The precision of the times that the kernel sets itself.
    pub times: Times,
}
