//! Error numbers, as in replies.

/// A system error number, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted.
    pub const PERM: Errno = Errno(libc::EPERM);
    /// Input or output error.
    pub const IO: Errno = Errno(libc::EIO);
    /// Invalid argument.
    pub const INVAL: Errno = Errno(libc::EINVAL);
    /// The object does not support this operation.
    pub const NOTTY: Errno = Errno(libc::ENOTTY);
    /// An id is unmapped, or the digest of a verity file does not fit into the caller's buffer.
    pub const OVERFLOW: Errno = Errno(libc::EOVERFLOW);
    /// The result does not fit into the caller's buffer.
    pub const RANGE: Errno = Errno(libc::ERANGE);
    /// Not implemented; the kernel does not send this operation again.
    pub const NOSYS: Errno = Errno(libc::ENOSYS);
    /// No space left.
    pub const NOSPC: Errno = Errno(libc::ENOSPC);
    /// No such name.
    pub const NOENT: Errno = Errno(libc::ENOENT);
    /// Busy with another request.
    pub const BUSY: Errno = Errno(libc::EBUSY);
    /// Not supported.
    pub const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
}

impl From<lanefs_ext4::Error> for Errno {
    fn from(error: lanefs_ext4::Error) -> Errno {
        Errno(error.errno())
    }
}
