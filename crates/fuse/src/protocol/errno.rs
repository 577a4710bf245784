//! Error numbers as replies carry them.

/// A system error number, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted.
    pub const PERM: Errno = Errno(libc::EPERM);
    /// Input or output error.
    pub const IO: Errno = Errno(libc::EIO);
    /// An argument makes no sense.
    pub const INVAL: Errno = Errno(libc::EINVAL);
    /// Not an operation of this object.
    pub const NOTTY: Errno = Errno(libc::ENOTTY);
    /// Result does not fit.
    pub const RANGE: Errno = Errno(libc::ERANGE);
    /// The kernel need not ask again.
    pub const NOSYS: Errno = Errno(libc::ENOSYS);
    /// No room.
    pub const NOSPC: Errno = Errno(libc::ENOSPC);
    /// Nothing of that name.
    pub const NOENT: Errno = Errno(libc::ENOENT);
    /// Another request is at it.
    pub const BUSY: Errno = Errno(libc::EBUSY);
    /// Not supported.
    pub const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
}

impl From<lanefs_ext4::Error> for Errno {
    fn from(error: lanefs_ext4::Error) -> Errno {
        Errno(error.errno())
    }
}
