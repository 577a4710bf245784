//! The first request: what kernel and server agree on.

use crate::protocol::abi::{self, init};
use crate::protocol::{AsyncDirect, Caching, Errno, MAX_DATA, Opens, Outbox, Request, Wishes};

/// The agreement with the kernel: what it offers of what this server wants, which is returned as bits of
/// [`init`].
///
/// # Errors
/// EINVAL if the kernel is too old (before 7.31, Linux 5.4).
pub fn agree(request: &mut Request<'_>, outbox: &mut Outbox, wishes: Wishes) -> Result<u64, Errno> {
    const WANTED: u64 = init::ASYNC_READ
        | init::ATOMIC_O_TRUNC
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
        | init::INIT_EXT;
    let offer: abi::InitIn = request.take()?;
    if offer.major != abi::MAJOR || offer.minor < 31 {
        return Err(Errno::INVAL);
    }
    let mut offered = u64::from(offer.flags);
    if offered & init::INIT_EXT != 0 {
        offered |= u64::from(request.take::<abi::InitExtIn>()?.flags2) << 32;
    }
    let agreed = offered & WANTED & !not_wanted(wishes);
    // Without it the layout of SETXATTR is another, and chown would not take set-user-ID away.
    if agreed & init::SETXATTR_EXT == 0 || agreed & init::HANDLE_KILLPRIV_V2 == 0 {
        return Err(Errno::INVAL);
    }
    outbox.clear();
    outbox.put(&abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: offer.max_readahead.max(MAX_DATA as u32),
        flags: agreed as u32,
        max_background: 64,
        congestion_threshold: 48,
        max_write: MAX_DATA as u32,
        time_gran: 1,
        max_pages: (MAX_DATA / 4096) as u16,
        map_alignment: 0,
        flags2: (agreed >> 32) as u32,
        unused: [0; 7],
    });
    Ok(agreed)
}

fn not_wanted(wishes: Wishes) -> u64 {
    let mut flags = 0;
    if wishes.caching == Caching::Writethrough {
        flags |= init::WRITEBACK_CACHE;
    }
    if wishes.opens == Opens::NotAsked {
        // The kernel would leave the truncation to an OPEN that it does not send.
        flags |= init::ATOMIC_O_TRUNC;
    }
    if wishes.async_direct == AsyncDirect::Waits {
        flags |= init::ASYNC_DIO;
    }
    flags
}
