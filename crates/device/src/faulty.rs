//! A device that fails on request.

use crate::device::{Device, DeviceError, Operation, ReadKind, WriteKind, total_len};
use crate::forward;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use std::io;

/// The duration of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duration {
    /// One operation fails; the next operation of its kind succeeds.
    Once,
    /// The chosen operation and all later ones of its kind fail.
    FromThenOn,
}

/// The operation that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The kind of the operation. Durable writes and zeroing count as writes.
    pub operation: Operation,
    /// The number of the operation, counted from 1 among the operations of its kind since the
    /// wrapper was created.
    pub nth: u64,
    /// Whether later operations of this kind fail too.
    pub duration: Duration,
}

/// Wraps a device and fails chosen operations. A failed write writes nothing; a failed flush is not
/// passed to the device.
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    fault: Option<Fault>,
    /// The number of operations of each kind.
    counts: [AtomicU64; 4],
}

impl FaultyDevice {
    /// Creates a device with this fault. With `None` the wrapper makes no operation fail, and only
    /// counts the operations.
    pub fn new(inner: Arc<dyn Device>, fault: Option<Fault>) -> FaultyDevice {
        FaultyDevice { inner, fault, counts: Default::default() }
    }

    /// Returns the number of operations of this kind so far. After a run without a fault, this is
    /// the largest useful [`Fault::nth`].
    pub fn count(&self, operation: Operation) -> u64 {
        self.counts[operation as usize].load(Ordering::Relaxed)
    }

    fn strike(&self, operation: Operation, offset: u64, len: u64) -> Result<(), DeviceError> {
        let n = self.counts[operation as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let hit = self.fault.is_some_and(|fault| {
            fault.operation == operation
                && match fault.duration {
                    Duration::Once => n == fault.nth,
                    Duration::FromThenOn => n >= fault.nth,
                }
        });
        if hit {
            let source = io::Error::other("injected fault");
            return Err(DeviceError::new(operation, offset, len, source));
        }
        Ok(())
    }
}

impl Device for FaultyDevice {
    forward!(inner: len, alignment, row_len, is_read_only);
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        self.strike(Operation::Read, offset, buf.len() as u64)?;
        self.inner.read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.strike(Operation::Write, offset, total_len(bufs))?;
        self.inner.write(offset, bufs, kind)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.strike(Operation::Flush, 0, 0)?;
        self.inner.flush()
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.strike(Operation::Write, offset, len)?;
        self.inner.write_zeros(offset, len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.strike(Operation::Discard, offset, len)?;
        self.inner.discard(offset, len)
    }
}

#[cfg(test)]
mod tests;
