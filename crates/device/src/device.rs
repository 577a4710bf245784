//! The interface of devices.

use std::path::Path;
use thiserror::Error;

/// The access for which a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads only; shares the image with other readers.
    ReadOnly,
    /// Reads and writes; shares the image with no other program.
    ReadWrite,
}

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// [`Device::read_at`].
    Read,
    /// [`Device::write_at`].
    Write,
    /// [`Device::flush`].
    Flush,
    /// [`Device::discard`].
    Discard,
}

/// The purpose of a read, which decides whether it uses the host's page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadKind {
    /// Reads through the page cache.
    Cached,
    /// Reads file data; may bypass the page cache.
    Data,
    /// Bypasses this host's page cache, since another computer may have changed the bytes.
    Fresh,
}

/// The purpose of a write, which decides whether it uses the host's page cache, and whether it is
/// durable when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// Writes through the page cache.
    Cached,
    /// Writes file data; may bypass the page cache.
    Data,
    /// Writes blocks of a log; may bypass the page cache, because only a recovery reads the log.
    Log,
    /// Writes durably. Callers must not rely on this write to make other writes durable.
    Durable,
    /// Does the same as `Durable`, but may bypass the page cache.
    DurableLog,
}

impl WriteKind {
    /// Returns whether the bytes are durable when the write returns.
    pub fn is_durable(self) -> bool {
        matches!(self, WriteKind::Durable | WriteKind::DurableLog)
    }
    pub(crate) fn may_bypass_cache(self) -> bool {
        matches!(self, WriteKind::Data | WriteKind::Log | WriteKind::DurableLog)
    }
}

/// A failed device operation. Cloneable, because an aborted journal keeps a copy of the error that
/// aborted it.
#[derive(Debug, Clone, Error)]
#[error("device: {operation:?} of {len} bytes at byte {offset} failed: {source}")]
pub struct DeviceError {
    /// The failed operation.
    pub operation: Operation,
    /// Offset in bytes; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u64,
    /// The host's error.
    pub source: std::sync::Arc<std::io::Error>,
}

impl DeviceError {
    /// Creates the error of `operation` on `len` bytes at `offset`, caused by `source`.
    pub fn new(
        operation: Operation,
        offset: u64,
        len: u64,
        source: impl Into<std::io::Error>,
    ) -> DeviceError {
        DeviceError { operation, offset, len, source: std::sync::Arc::new(source.into()) }
    }

    /// Creates the error of an operation in a child of fork(2), whose parent uses the device.
    pub fn forked(operation: Operation, offset: u64, len: u64) -> DeviceError {
        let source = std::io::Error::other("opened by the parent process, before fork(2)");
        DeviceError::new(operation, offset, len, source)
    }
}

/// Returns an error if `len` bytes at `offset` are not within a device of `size` bytes.
///
/// # Errors
/// `UnexpectedEof`.
pub fn check_range(
    operation: Operation,
    offset: u64,
    len: u64,
    size: u64,
) -> Result<(), DeviceError> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::new(operation, offset, len, std::io::ErrorKind::UnexpectedEof)),
    }
}

/// A block device, shared by threads. All offsets and lengths are bytes.
///
/// *Ordering*: a write that has returned is visible to every later read. It is certain to survive a
/// crash only after a successful [`Device::flush`] that was called after the write returned.
/// Concurrent writes to the same range may leave any mix of their bytes.
pub trait Device: Send + Sync {
    /// Returns the size in bytes.
    fn len(&self) -> u64;
    /// Returns whether the size is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Makes the device at least `len` bytes long, if possible. An image file gets a hole at its
    /// end. For a block device, the size is read again.
    fn lengthen(&self, len: u64) -> Result<(), DeviceError> {
        let refused = std::io::ErrorKind::Unsupported;
        Err(DeviceError::new(Operation::Write, len, 0, refused))
    }
    /// Returns the unit, in bytes, of the offsets and lengths of reads and writes: 1 unless the
    /// device was opened for direct I/O. If two threads write different parts of one unit at the
    /// same time, data may be lost.
    fn alignment(&self) -> u32 {
        1
    }
    /// Returns the length in bytes of a RAID row. The first row starts at byte 0. A write of whole
    /// rows needs no reads. Returns 0 if the device has no rows.
    fn row_len(&self) -> u64 {
        0
    }
    /// Returns whether all writes fail.
    fn is_read_only(&self) -> bool;
    /// Returns whether `path` leads to this very file or block device. Another file may have got
    /// the name since the device was opened.
    fn is_at(&self, _path: &Path) -> bool {
        false
    }
    /// Fills all of `buf` from `offset`; returns an error if the range goes beyond the end.
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError>;
    /// Writes the buffers one after another from `offset`; returns an error if the range goes
    /// beyond the end.
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError>;
    /// Calls [`Device::read`] with [`ReadKind::Cached`]. No device overrides this method or one of
    /// the others that only name a kind.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.read(offset, buf, ReadKind::Cached)
    }
    /// Calls [`Device::read`] with [`ReadKind::Data`].
    fn read_data_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.read(offset, buf, ReadKind::Data)
    }
    /// Calls [`Device::read`] with [`ReadKind::Fresh`].
    fn read_fresh_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.read(offset, buf, ReadKind::Fresh)
    }
    /// Calls [`Device::write`] with one buffer and [`WriteKind::Cached`].
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, &[buf], WriteKind::Cached)
    }
    /// Calls [`Device::write`] with [`WriteKind::Cached`].
    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> Result<(), DeviceError> {
        self.write(offset, bufs, WriteKind::Cached)
    }
    /// Calls [`Device::write`] with one buffer and [`WriteKind::Data`].
    fn write_data_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, &[buf], WriteKind::Data)
    }
    /// Calls [`Device::write`] with [`WriteKind::Log`].
    fn write_log_at(&self, offset: u64, bufs: &[&[u8]]) -> Result<(), DeviceError> {
        self.write(offset, bufs, WriteKind::Log)
    }
    /// Calls [`Device::write`] with one buffer and [`WriteKind::Durable`].
    fn write_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, &[buf], WriteKind::Durable)
    }
    /// Calls [`Device::write`] with one buffer and [`WriteKind::DurableLog`].
    fn write_log_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, &[buf], WriteKind::DurableLog)
    }
    /// Makes durable every write that returned before this call.
    fn flush(&self) -> Result<(), DeviceError>;
    /// Writes zeros; may free space on the host.
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        put_zeros(self, offset, len)
    }
    /// Declares that the bytes are not needed any more. Later reads of this range return undefined
    /// bytes.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError>;
}

/// Reads bytes at an offset that need not be aligned as the device requires. Returns false if they
/// are not within the device.
///
/// # Errors
/// If the device fails.
pub fn read_unaligned(
    device: &dyn Device,
    offset: u64,
    bytes: &mut [u8],
) -> Result<bool, DeviceError> {
    let alignment = u64::from(device.alignment()).max(1);
    let start = offset / alignment * alignment;
    let end = offset.checked_add(bytes.len() as u64);
    let end = end.and_then(|end| end.checked_next_multiple_of(alignment));
    let Some(end) = end.filter(|end| *end <= device.len()) else { return Ok(false) };
    let mut whole = vec![0; (end - start) as usize];
    device.read_at(start, &mut whole)?;
    let from = (offset - start) as usize;
    bytes.copy_from_slice(&whole[from..from + bytes.len()]);
    Ok(true)
}

/// A shared device is a device too, so a wrapper takes a concrete type or an `Arc<dyn Device>`.
impl<D: Device + ?Sized> Device for std::sync::Arc<D> {
    fn len(&self) -> u64 {
        (**self).len()
    }
    fn lengthen(&self, len: u64) -> Result<(), DeviceError> {
        (**self).lengthen(len)
    }
    fn alignment(&self) -> u32 {
        (**self).alignment()
    }
    fn row_len(&self) -> u64 {
        (**self).row_len()
    }
    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }
    fn is_at(&self, path: &Path) -> bool {
        (**self).is_at(path)
    }
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        (**self).read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        (**self).write(offset, bufs, kind)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        (**self).flush()
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        (**self).write_zeros(offset, len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        (**self).discard(offset, len)
    }
}

/// Writes buffers of zeros.
pub(crate) fn put_zeros<D>(device: &D, offset: u64, len: u64) -> Result<(), DeviceError>
where
    D: Device + ?Sized,
{
    const CHUNK: u64 = 64 << 10;
    let zeros = vec![0u8; CHUNK.min(len) as usize];
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let n = CHUNK.min(end - at);
        device.write_at(at, &zeros[..n as usize])?;
        at += n;
    }
    Ok(())
}

/// Returns the sum of the lengths of `bufs`.
pub fn total_len(bufs: &[&[u8]]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}
