//! Direct I/O for file data and for the log, bypassing the host's page cache.
//!
//! Only whole pages of the host are read and written directly. Otherwise a page could contain both
//! data that is written directly and a block that is written through the cache. The cache could
//! then overwrite the directly written data with an older copy. Before a direct access, Linux
//! writes back or drops the cached pages of the accessed range
//! ([open(2)](https://man7.org/linux/man-pages/man2/open.2.html), O_DIRECT).

use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The largest number of bytes in one transfer through aligned memory.
const PIECE: usize = 1 << 20;

/// A file or block device that is opened for direct I/O.
#[derive(Debug)]
pub(crate) struct Direct {
    file: File,
    /// The host's page size: the unit of offsets and lengths.
    unit: usize,
    /// The alignment of memory that the host requires.
    memory: usize,
    /// Becomes false when the host refuses a direct access. The flag is rarely written, so its
    /// cache line stays shared.
    works: AtomicBool,
}

thread_local! {
    /// Aligned memory, through which data is copied if the caller's buffer is not aligned.
    static ALIGNED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Direct {
    /// Opens the file at `path` a second time, for direct I/O.
    ///
    /// # Errors
    /// An error of the host, for example if the file system has no direct I/O; or `NotFound` if the
    /// path no longer refers to `same`.
    pub(crate) fn open(path: &Path, same: &File, writes: bool) -> io::Result<Direct> {
        let flags = OFlags::DIRECT.bits() as i32;
        let file = File::options().read(true).write(writes).custom_flags(flags).open(path)?;
        let (this, that) = (file.metadata()?, same.metadata()?);
        if (this.dev(), this.ino(), this.rdev()) != (that.dev(), that.ino(), that.rdev()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let unit = rustix::param::page_size();
        // For a block device, memory must be aligned to its sector size. For a file, memory must be
        // aligned to a page.
        let memory = rustix::fs::ioctl_blksszget(&file).map_or(unit, |sector| sector as usize);
        Ok(Direct { file, unit, memory, works: AtomicBool::new(true) })
    }

    /// Returns the unit of offsets and lengths in bytes.
    pub(crate) fn unit(&self) -> usize {
        self.unit
    }

    fn takes(&self, at: u64, len: usize) -> bool {
        let unit = self.unit as u64;
        self.works.load(Ordering::Relaxed)
            && len > 0
            && at.is_multiple_of(unit)
            && (len as u64).is_multiple_of(unit)
    }

    /// Reads from byte `at` of the file. Returns `false` if the range cannot be read directly, in
    /// which case the contents of `buf` are undefined.
    pub(crate) fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<bool> {
        if !self.takes(at, buf.len()) {
            return Ok(false);
        }
        if buf.as_ptr().addr().is_multiple_of(self.memory) {
            return self.done(self.file.read_exact_at(buf, at));
        }
        let mut from = at;
        for piece in buf.chunks_mut(PIECE) {
            let read = self.with_aligned(piece.len(), |aligned| {
                self.file.read_exact_at(aligned, from).map(|()| piece.copy_from_slice(aligned))
            });
            if !self.done(read)? {
                return Ok(false);
            }
            from += piece.len() as u64;
        }
        Ok(true)
    }

    /// Writes `bufs` one after another from byte `at` of the file. Returns `false` if the range
    /// cannot be written directly, in which case some of its bytes may have been written.
    pub(crate) fn write_at(&self, mut at: u64, bufs: &[&[u8]]) -> io::Result<bool> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if !self.takes(at, len) {
            return Ok(false);
        }
        if let [buf] = bufs
            && buf.as_ptr().addr().is_multiple_of(self.memory)
        {
            return self.done(self.file.write_all_at(buf, at));
        }
        let written = self.with_aligned(PIECE.min(len), |aligned| {
            let mut filled = 0;
            for mut buf in bufs.iter().copied() {
                while !buf.is_empty() {
                    let (part, rest) = buf.split_at(buf.len().min(aligned.len() - filled));
                    aligned[filled..filled + part.len()].copy_from_slice(part);
                    (buf, filled) = (rest, filled + part.len());
                    if filled == aligned.len() {
                        self.file.write_all_at(aligned, at)?;
                        (at, filled) = (at + filled as u64, 0);
                    }
                }
            }
            self.file.write_all_at(&aligned[..filled], at)
        });
        self.done(written)
    }

    /// Returns whether a direct access was possible. The host returns EINVAL if it was not.
    fn done(&self, result: io::Result<()>) -> io::Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.works.store(false, Ordering::Relaxed);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs `run` on `len` bytes of aligned memory, whose contents are undefined.
    fn with_aligned<R>(&self, len: usize, run: impl FnOnce(&mut [u8]) -> R) -> R {
        ALIGNED.with_borrow_mut(|memory| {
            if memory.len() < len + self.memory {
                memory.resize(len + self.memory, 0);
            }
            let skipped = memory.as_ptr().addr().wrapping_neg() % self.memory;
            run(&mut memory[skipped..skipped + len])
        })
    }
}
