//! Reads and writes a file or block device of the host.

use super::FileDevice;
use crate::device::{Access, Device, DeviceError, Operation, ReadKind, WriteKind};
use crate::device::{check_range, put_zeros, total_len};
use crate::partitions::{Partition, Pick, Place};
use lanefs_lanes::sync::atomic::Ordering;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::Metadata;
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// The maximum number of buffers in one `pwritev` (`UIO_MAXIOV` of Linux).
const MAX_SLICES: usize = 1024;

/// `_IO(0x12, 119)` of `<linux/fs.h>`: discard a byte range of a block device.
const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);

impl FileDevice {
    /// Returns the offset in the file that corresponds to byte `offset` of the device. The caller
    /// will write, discard or zero `len` bytes there.
    fn place(&self, operation: Operation, offset: u64, len: u64) -> Result<u64, DeviceError> {
        if self.is_read_only() {
            let refused = io::ErrorKind::ReadOnlyFilesystem;
            return Err(DeviceError::new(operation, offset, len, refused));
        }
        if !self.opener.is_this() {
            return Err(DeviceError::forked(operation, offset, len));
        }
        check_range(operation, offset, len, self.len())?;
        self.check_length(operation, offset, len)?;
        Ok(self.start + offset)
    }

    fn check_length(&self, operation: Operation, offset: u64, len: u64) -> Result<(), DeviceError> {
        if self.is_block || !self.keeps_length {
            return Ok(());
        }
        let failed = |error| DeviceError::new(operation, offset, len, error);
        let size = self.file.metadata().map_err(failed)?.len();
        if size >= self.start + self.len() {
            return Ok(());
        }
        Err(failed(io::Error::other("the file was made shorter while in use")))
    }

    /// Advises the host to drop the cached pages of a range of the file, unless they are dirty. A
    /// file system without a page cache ignores the advice or refuses it.
    fn drop_cached(&self, at: u64, len: u64) {
        let unit = rustix::param::page_size() as u64;
        let first = at / unit * unit;
        let len = (at - first + len).next_multiple_of(unit);
        let dont_need = rustix::fs::Advice::DontNeed;
        let _ = rustix::fs::fadvise(&self.file, first, NonZeroU64::new(len), dont_need);
    }

    /// Writes `bufs` one after another through the host's page cache.
    fn write_cached(&self, mut at: u64, bufs: &[&[u8]], flags: ReadWriteFlags) -> io::Result<()> {
        if let ([buf], true) = (bufs, flags.is_empty()) {
            return self.file.write_all_at(buf, at);
        }
        let mut slices: Vec<IoSlice<'_>> = bufs.iter().map(|b| IoSlice::new(b)).collect();
        let mut rest = slices.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let batch = rest.len().min(MAX_SLICES);
            // An old host has pwritev2 no more than durable writes.
            let written = match flags.is_empty() {
                true => rustix::io::pwritev(&self.file, &rest[..batch], at),
                false => rustix::io::pwritev2(&self.file, &rest[..batch], at, flags),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    at += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Makes one durable write. Returns `false` if the host does not support durable writes, in
    /// which case the caller must write all bytes in another way.
    fn write_dsync(&self, at: u64, bufs: &[&[u8]]) -> io::Result<bool> {
        if !self.has_dsync.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.write_cached(at, bufs, ReadWriteFlags::DSYNC) {
            Ok(()) => Ok(true),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.has_dsync.store(false, Ordering::Relaxed);
                    Ok(false)
                }
                _ => Err(error),
            },
        }
    }

    fn discard_in_block_device(&self, at: u64, len: u64) -> rustix::io::Result<()> {
        let range = [at, len];
        // SAFETY: BLKDISCARD reads two u64, start and length in bytes, and `range` has these two.
        unsafe {
            rustix::ioctl::ioctl(
                &self.file,
                rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new(range),
            )
        }
    }
}

impl Device for FileDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn lengthen(&self, len: u64) -> Result<(), DeviceError> {
        let failed = |error| DeviceError::new(Operation::Write, len, 0, error);
        if self.is_read_only() || !self.to_end {
            return Err(failed(io::ErrorKind::Unsupported.into()));
        }
        let mut size = match &self.nbd {
            Some(nbd) => nbd.len(),
            None => (&self.file).seek(SeekFrom::End(0)).map_err(failed)?,
        };
        // The table is read again, because the partition may have been enlarged. It may also be
        // gone, or its table damaged: then nothing says how much room there is.
        let (start, disk) = (self.start, (size, self.sector()));
        let read = |at, bytes: &mut [u8]| self.read_disk(at, bytes).ok();
        let found = Place::find(None, (start, Pick::Nothing), disk, &read).ok();
        let found = found.and_then(|place| place.partition);
        let place = |of: &Option<Partition>| of.as_ref().map(|of| (of.number, of.bytes.start));
        if self.partition.is_some() && place(&found) != place(&self.partition) {
            return Err(failed(io::ErrorKind::StorageFull.into()));
        }
        if let Some(found) = found {
            size = size.min(found.bytes.end);
        }
        let needs = self.start.saturating_add(len);
        if size < needs {
            // If the device is only a part of the file, the end of the file may belong to another
            // part.
            if self.is_block || self.start != 0 {
                return Err(failed(io::ErrorKind::StorageFull.into()));
            }
            self.file.set_len(needs).map_err(failed)?;
        }
        self.len.fetch_max(size.max(needs) - self.start, Ordering::Relaxed);
        Ok(())
    }

    fn alignment(&self) -> u32 {
        self.direct.as_ref().map_or(1, |direct| direct.unit() as u32)
    }

    fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }
    fn is_at(&self, path: &Path) -> bool {
        let place = |found: Metadata| match self.is_block && self.nbd.is_none() {
            true => (found.rdev(), 0),
            false => (found.dev(), found.ino()),
        };
        let (own, there) = (self.file.metadata().map(place), path.metadata().map(place));
        matches!((own, there), (Ok(own), Ok(there)) if own == there)
    }

    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        let len = buf.len() as u64;
        check_range(Operation::Read, offset, len, self.len())?;
        let at = self.start + offset;
        let failed = |error| DeviceError::new(Operation::Read, offset, len, error);
        if let Some(nbd) = &self.nbd {
            return nbd.read(at, buf).map_err(failed);
        }
        if kind == ReadKind::Fresh {
            self.drop_cached(at, len);
        }
        match (kind, &self.direct) {
            (ReadKind::Data, Some(direct)) if direct.read_at(at, buf).map_err(failed)? => Ok(()),
            _ => self.file.read_exact_at(buf, at).map_err(failed),
        }
    }

    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let len = total_len(bufs);
        let at = self.place(Operation::Write, offset, len)?;
        let failed = |error| DeviceError::new(Operation::Write, offset, len, error);
        if let Some(nbd) = &self.nbd {
            return nbd.write(at, bufs, kind.is_durable()).map_err(failed);
        }
        let direct = self.direct.as_ref().filter(|_| kind.may_bypass_cache());
        // Linux flushes a block device after each direct write with RWF_DSYNC, even if the write
        // itself was durable. So the flag would save no flush.
        let durable = kind.is_durable() && direct.is_none();
        if durable && self.write_dsync(at, bufs).map_err(failed)? {
            return Ok(());
        }
        let is_written = direct.map_or(Ok(false), |direct| direct.write_at(at, bufs));
        if !is_written.map_err(failed)? {
            self.write_cached(at, bufs, ReadWriteFlags::empty()).map_err(failed)?;
        }
        if kind.is_durable() { self.flush() } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.is_read_only() {
            return Ok(());
        }
        self.check_length(Operation::Flush, 0, 0)?;
        let flushed = match &self.nbd {
            Some(nbd) => nbd.flush(),
            None => {
                rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.file)).map_err(Into::into)
            }
        };
        flushed.map_err(|error| DeviceError::new(Operation::Flush, 0, 0, error))
    }

    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let at = self.place(Operation::Write, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let failed = |error| DeviceError::new(Operation::Write, offset, len, error);
        if let Some(nbd) = &self.nbd {
            return match nbd.write_zeros(at, len).map_err(failed)? {
                true => Ok(()),
                false => put_zeros(self, offset, len),
            };
        }
        // A file gets a hole if possible, since a hole reads as zeros and takes no space. On a
        // block device ZERO_RANGE does the same as BLKZEROOUT.
        let hole = (!self.is_block).then_some(FallocateFlags::PUNCH_HOLE);
        for way in hole.into_iter().chain([FallocateFlags::ZERO_RANGE]) {
            let way = way | FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&self.file, way, at, len) {
                Ok(()) => return Ok(()),
                // INVAL: a block device requires whole sectors. BUSY: the block device is claimed
                // through another open file (`claim`, or the open file of a mount), and a page of
                // the range is dirty or in use. Nothing was zeroed.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::INTR | Errno::BUSY) => {
                }
                Err(e) => return Err(failed(e.into())),
            }
        }
        put_zeros(self, offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let at = self.place(Operation::Discard, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        if let Some(nbd) = &self.nbd {
            let failed = |error| DeviceError::new(Operation::Discard, offset, len, error);
            return nbd.discard(at, len).map_err(failed);
        }
        let done = if self.is_block {
            self.discard_in_block_device(at, len)
        } else {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&self.file, hole, at, len)
        };
        match done {
            // A discard is a hint, so it is not an error if the host does not support it. BUSY: as
            // in `write_zeros`.
            Ok(())
            | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::INTR | Errno::BUSY) => {
                Ok(())
            }
            Err(e) => Err(DeviceError::new(Operation::Discard, offset, len, e)),
        }
    }
}
