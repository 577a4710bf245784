//! The locks by which qemu keeps two programs from using one image at a time.
//!
//! qemu locks single bytes with the OFD locks of fcntl(2). A permission that a program has on the
//! image is a shared lock on byte 100 + n; a permission that the program does not let others have
//! is a shared lock on byte 200 + n. First a program takes its locks, then it tests whether another
//! one holds a conflicting lock. So of two programs that start together at least one notices the
//! other (qemu, `docs/interop` and the comments of `block/file-posix.c`; checked with qemu 7.2).
//!
//! An OFD lock belongs to the open file: neither a fork nor the closing of another descriptor of
//! the same file releases it.

use crate::device::Access;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The byte that stands for the first permission.
const HAS: i64 = 100;
/// The byte that stands for not sharing the first permission.
const KEEPS: i64 = 200;
/// The bytes that stand for permissions.
const BYTES: Range<i64> = HAS..KEEPS + 100;

/// Permissions by their numbers. 2, writing what is there already, is used by qemu alone.
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// What an access needs, and what it does not let others have.
fn permissions(access: Access) -> (&'static [i64], &'static [i64]) {
    match access {
        Access::ReadOnly => (&[READ], &[WRITE]),
        Access::ReadWrite => (&[READ, WRITE, RESIZE], &[WRITE, RESIZE]),
    }
}

/// Locks `file` for `access`. Returns `false` if a program that uses the image excludes this
/// access. A file system of the host without such locks excludes nothing.
///
/// # Errors
/// An error of the host.
pub(crate) fn lock(file: &File, access: Access) -> io::Result<bool> {
    match try_lock(file, access) {
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            Some(libc::EINVAL | libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS) => Ok(true),
            _ => Err(error),
        },
        locked => locked,
    }
}

fn try_lock(file: &File, access: Access) -> io::Result<bool> {
    let (has, keeps) = permissions(access);
    let own = has.iter().map(|n| HAS + n).chain(keeps.iter().map(|n| KEEPS + n));
    for byte in own {
        set(file, byte..byte + 1, libc::F_RDLCK)?;
    }
    let others = has.iter().map(|n| KEEPS + n).chain(keeps.iter().map(|n| HAS + n));
    for byte in others {
        if is_locked(file, byte)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Releases the locks, even if a forked child has not closed its copy of the descriptor yet.
pub(crate) fn unlock(file: &File) {
    // Closing the file releases the locks too.
    let _ = set(file, BYTES, libc::F_UNLCK);
}

fn record(bytes: Range<i64>, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start,
        l_len: bytes.end - bytes.start,
        l_pid: 0,
    }
}

fn set(file: &File, bytes: Range<i64>, kind: libc::c_int) -> io::Result<()> {
    let record = record(bytes, kind);
    // SAFETY: the descriptor is open, and the kernel reads one `flock` structure.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const record) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns whether another open file has a lock on `byte`.
fn is_locked(file: &File, byte: i64) -> io::Result<bool> {
    let mut record = record(byte..byte + 1, libc::F_WRLCK);
    // SAFETY: the descriptor is open, and the kernel reads and writes one `flock` structure.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut record) };
    if done == 0 {
        Ok(record.l_type != libc::F_UNLCK as libc::c_short)
    } else {
        Err(io::Error::last_os_error())
    }
}
