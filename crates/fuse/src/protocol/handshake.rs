//! INIT, the first request: kernel and server agree on a version and features.

use crate::protocol::abi::{self, init};
use crate::protocol::{
    AsyncDirect, Caching, Checks, Errno, MAX_DATA, Outbox, Request, Times, Wishes,
};

/// The kernel's version, features and limits in INIT.
pub struct Offer {
    max_readahead: u32,
    flags: u64,
}

impl Offer {
    /// ATOMIC_O_TRUNC is not wanted. With it, OPEN would have to truncate the file, but the kernel
    /// may still refuse the open(2) afterwards: it looks for a running program (ETXTBSY), and asks
    /// its security modules, only before it truncates. Without the flag it then sends a SETATTR.
    const WANTED: u64 = init::ASYNC_READ
        | init::EXPORT_SUPPORT
        | init::BIG_WRITES
        | init::DONT_MASK
        | init::HAS_IOCTL_DIR
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::ASYNC_DIO
        | init::WRITEBACK_CACHE
        | init::PARALLEL_DIROPS
        | init::POSIX_ACL
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS
        | init::NO_OPENDIR_SUPPORT
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::DIRECT_IO_ALLOW_MMAP
        | init::INIT_EXT
        | init::OVER_IO_URING;

    /// Parses INIT.
    ///
    /// # Errors
    /// EINVAL if the kernel is too old (before 7.31, Linux 5.4) or lacks a feature that the server
    /// needs.
    pub fn take(request: &mut Request<'_>) -> Result<Offer, Errno> {
        let offer: abi::InitIn = request.take()?;
        if offer.major != abi::MAJOR || offer.minor < 31 {
            return Err(Errno::INVAL);
        }
        let mut flags = u64::from(offer.flags);
        if flags & init::INIT_EXT != 0 {
            flags |= u64::from(request.take::<abi::InitExtIn>()?.flags2) << 32;
        }
        // Without SETXATTR_EXT, the record of SETXATTR is shorter. Without HANDLE_KILLPRIV_V2,
        // chown would not remove set-user-ID.
        if flags & init::SETXATTR_EXT == 0 || flags & init::HANDLE_KILLPRIV_V2 == 0 {
            return Err(Errno::INVAL);
        }
        Ok(Offer { max_readahead: offer.max_readahead, flags })
    }

    /// Returns whether requests can come by io_uring. The kernel offers io_uring only where root
    /// has enabled it.
    pub fn has_ring(&self) -> bool {
        self.flags & init::OVER_IO_URING != 0
    }

    /// Writes the reply: the features that the kernel offers and this server wants. Returns these
    /// features as bits of [`init`].
    pub fn accept(&self, wishes: Wishes, by_ring: bool, outbox: &mut Outbox) -> u64 {
        let mut agreed = self.flags & Self::WANTED & !not_wanted(wishes);
        if !by_ring {
            agreed &= !init::OVER_IO_URING;
        }
        outbox.clear();
        outbox.put(&abi::InitOut {
            major: abi::MAJOR,
            minor: abi::MINOR,
            max_readahead: self.max_readahead.max(MAX_DATA as u32),
            flags: agreed as u32,
            max_background: 64,
            congestion_threshold: 48,
            max_write: MAX_DATA as u32,
            time_gran: match wishes.times {
                Times::Fine => 1,
                Times::Seconds => 1_000_000_000,
            },
            max_pages: (MAX_DATA / 4096) as u16,
            map_alignment: 0,
            flags2: (agreed >> 32) as u32,
            unused: [0; 7],
        });
        agreed
    }
}

fn not_wanted(wishes: Wishes) -> u64 {
    let mut flags = 0;
    if wishes.caching == Caching::Writethrough {
        flags |= init::WRITEBACK_CACHE;
    }
    if wishes.async_direct == AsyncDirect::Waits {
        flags |= init::ASYNC_DIO;
    }
    if wishes.checks != Checks::ByKernel {
        // On such a mount the server checks permissions itself, so it refuses these flags. With
        // POSIX_ACL the kernel would check permissions too. With NO_OPENDIR_SUPPORT the kernel
        // would not send OPENDIR, and the server could not check the caller's permission.
        flags |= init::POSIX_ACL | init::NO_OPENDIR_SUPPORT;
    }
    flags
}
