//! A device in memory: for tests, for benchmarks without the noise of a disk, and for creating
//! images.
//!
//! *Concurrency.* Threads copy to and from one mapping without locks, just as they may access a
//! disk concurrently. In Rust that is sound only if racing accesses are atomic, so all bytes are
//! copied in relaxed atomic words. The unaligned ends of a range are merged into their words.
//! Nothing else is shared, not even a counter, so two operations on different bytes touch no common
//! cache line.

use crate::data::data_after;
use crate::device::{Device, DeviceError, Operation, ReadKind, WriteKind, check_range};
use lanefs_lanes::sync::unscheduled::atomic::{AtomicU64, Ordering::Relaxed};
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;

/// Images are loaded and stored in pieces of this size. A piece of zeros is not written, so that it
/// is a hole in the copy.
const PIECE: usize = 64 << 10;

const PAGE: u64 = 4096;

/// Sparse shared memory as a device; initially zeros.
#[derive(Debug)]
pub struct RamDevice {
    memory: NonNull<u8>,
    len: u64,
    file: File,
}

// SAFETY: the mapping lives as long as the value, and only atomic operations access it.
unsafe impl Send for RamDevice {}
// SAFETY: as above: concurrent accesses are relaxed atomics.
unsafe impl Sync for RamDevice {}

impl RamDevice {
    /// Creates a device of `len` bytes, all zeros; memory is used only for written parts.
    ///
    /// # Errors
    /// If the host has no address space left.
    pub fn create(len: u64) -> io::Result<RamDevice> {
        let fd = rustix::fs::memfd_create("lanefs-ram", rustix::fs::MemfdFlags::CLOEXEC)?;
        let file = File::from(fd);
        file.set_len(len)?;
        let size = usize::try_from(len.max(1)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing; no other
        // code has the memory file, so the file never shrinks and no access can fault.
        let memory = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )?
        };
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(RamDevice { memory, len, file })
    }

    /// Returns a copy of the image at `path`; holes stay holes.
    ///
    /// # Errors
    /// Errors of the host.
    pub fn from_file(path: impl AsRef<Path>) -> io::Result<RamDevice> {
        let file = File::open(path)?;
        let ram = RamDevice::create(file.metadata()?.len())?;
        let mut at = 0;
        while at < ram.len
            && let Some((start, end)) = data_after(&file, at, ram.len)?
            && start < ram.len
        {
            ram.fill(start..end.min(ram.len), |at, piece| file.read_exact_at(piece, at))?;
            at = end;
        }
        Ok(ram)
    }

    /// Returns a copy of the present contents of `device`.
    ///
    /// # Errors
    /// Errors of the device and of the host.
    pub fn copy_of(device: &dyn Device) -> io::Result<RamDevice> {
        let ram = RamDevice::create(device.len())?;
        ram.fill(0..ram.len, |at, piece| device.read_at(at, piece).map_err(io::Error::other))?;
        Ok(ram)
    }

    fn fill(
        &self,
        range: Range<u64>,
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut at = range.start;
        while at < range.end {
            let n = (PIECE as u64).min(range.end - at);
            let part = &mut piece[..n as usize];
            read(at, part)?;
            if part.iter().any(|b| *b != 0) {
                self.copy_in(at, part);
            }
            at += n;
        }
        Ok(())
    }

    /// Writes the contents of this device to a new or truncated file at `path`, leaving holes for
    /// zeros.
    ///
    /// # Errors
    /// Errors of the host.
    pub fn to_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        crate::ram::to_file(self, path)
    }

    fn copy_in(&self, offset: u64, buf: &[u8]) {
        let Parts { lead, head, words } = split(offset, buf.len());
        let mut at = offset as usize - lead;
        if head > 0 {
            self.merge(at, lead, &buf[..head]);
            at += 8;
        }
        let middle = &buf[head..head + words * 8];
        for bytes in middle.chunks_exact(8) {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            self.word(at).store(u64::from_ne_bytes(word), Relaxed);
            at += 8;
        }
        let tail = &buf[head + words * 8..];
        if !tail.is_empty() {
            self.merge(at, 0, tail);
        }
    }

    fn copy_out(&self, offset: u64, buf: &mut [u8]) {
        let Parts { lead, head, words } = split(offset, buf.len());
        let mut at = offset as usize - lead;
        if head > 0 {
            let word = self.word(at).load(Relaxed).to_ne_bytes();
            buf[..head].copy_from_slice(&word[lead..lead + head]);
            at += 8;
        }
        let (middle, tail) = buf[head..].split_at_mut(words * 8);
        for bytes in middle.chunks_exact_mut(8) {
            bytes.copy_from_slice(&self.word(at).load(Relaxed).to_ne_bytes());
            at += 8;
        }
        if !tail.is_empty() {
            let word = self.word(at).load(Relaxed).to_ne_bytes();
            tail.copy_from_slice(&word[..tail.len()]);
        }
    }

    /// Writes `bytes` into the word at `at`, from the word's byte `skip` on. Keeps the word's other
    /// bytes, even if other threads write them meanwhile.
    fn merge(&self, at: usize, skip: usize, bytes: &[u8]) {
        let replace = |word: u64| {
            let mut merged = word.to_ne_bytes();
            merged[skip..skip + bytes.len()].copy_from_slice(bytes);
            Some(u64::from_ne_bytes(merged))
        };
        // `replace` always returns `Some`, so the update cannot fail.
        let _ = self.word(at).fetch_update(Relaxed, Relaxed, replace);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && (at as u64) < self.len);
        // SAFETY: callers checked the range, `at` is a multiple of 8 below the length, and the
        // mapping consists of whole pages that outlive `self`. So the word is within the mapping
        // and is aligned. All accesses are atomic and of this one size.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(at).cast()) }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, hole, offset, len)?;
        Ok(())
    }
}

/// A range of bytes, split at the boundaries of aligned words into a head, whole words and a tail.
/// The tail has the rest of the range.
struct Parts {
    /// The number of bytes in the first word that come before the range.
    lead: usize,
    /// The number of bytes of the range in the first word, if the range starts inside this word; 0
    /// if the range starts at a word's first byte.
    head: usize,
    /// Whole words after the head.
    words: usize,
}

fn split(offset: u64, len: usize) -> Parts {
    let lead = (offset % 8) as usize;
    let head = if lead == 0 { 0 } else { (8 - lead).min(len) };
    Parts { lead, head, words: (len - head) / 8 }
}

/// Writes the contents of `device` to a new or truncated file at `path`, leaving holes for zeros.
pub(crate) fn to_file(device: &dyn Device, path: impl AsRef<Path>) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(device.len())?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < device.len() {
        let n = (PIECE as u64).min(device.len() - at);
        let part = &mut piece[..n as usize];
        device.read_at(at, part).map_err(io::Error::other)?;
        if part.iter().any(|b| *b != 0) {
            file.write_all_at(part, at)?;
        }
        at += n;
    }
    Ok(())
}

impl Drop for RamDevice {
    fn drop(&mut self) {
        // SAFETY: this is our mapping, and no borrow of it is left. A failure would leave the
        // mapping behind, which does no harm.
        let _ =
            unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.len.max(1) as usize) };
    }
}

impl Device for RamDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, buf: &mut [u8], _: ReadKind) -> Result<(), DeviceError> {
        check_range(Operation::Read, offset, buf.len() as u64, self.len)?;
        self.copy_out(offset, buf);
        Ok(())
    }

    fn write(&self, mut offset: u64, bufs: &[&[u8]], _: WriteKind) -> Result<(), DeviceError> {
        for buf in bufs {
            check_range(Operation::Write, offset, buf.len() as u64, self.len)?;
            self.copy_in(offset, buf);
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(Operation::Write, offset, len, self.len)?;
        if len == 0 {
            return Ok(());
        }
        self.punch(offset, len).map_err(|e| DeviceError::new(Operation::Write, offset, len, e))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(Operation::Discard, offset, len, self.len)?;
        // Frees whole pages only. The other bytes of the range keep their contents, which is
        // allowed, since reads of discarded bytes may return anything.
        let first = offset.next_multiple_of(PAGE);
        let last = (offset + len) / PAGE * PAGE;
        if first >= last {
            return Ok(());
        }
        self.punch(first, last - first)
            .map_err(|e| DeviceError::new(Operation::Discard, offset, len, e))
    }
}

#[cfg(test)]
mod tests;
