//! A device with a limit on the number of operations, and with bytes after the file system that
//! must not change.

use lanefs_device::{Device, DeviceError, Operation, OverlayDevice, ReadKind, WriteKind};
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use std::io;

/// The number of guard bytes after the file system.
pub const GUARD: u64 = 1 << 20;
/// The value of each guard byte.
pub const FILL: u8 = 0xa5;

/// A device that fails after a number of operations, so that an endless loop that uses the device
/// stops.
pub struct Guarded {
    inner: OverlayDevice,
    left: AtomicU64,
}

impl Guarded {
    /// Wraps an image that has [`GUARD`] bytes of [`FILL`] after it.
    pub fn new(inner: OverlayDevice, patience: u64) -> Guarded {
        Guarded { inner, left: AtomicU64::new(patience) }
    }

    /// Returns whether the limit is reached.
    pub fn is_exhausted(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Returns whether no byte from `end` on has changed.
    pub fn is_untouched_from(&self, end: u64) -> bool {
        let mut bytes = vec![0; (self.inner.len() - end) as usize];
        self.inner.read_at(end, &mut bytes).is_ok() && bytes.iter().all(|b| *b == FILL)
    }

    fn spend(&self, operation: Operation, offset: u64) -> Result<(), DeviceError> {
        let less = |left: u64| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Ok(()),
            Err(_) => Err(DeviceError::new(operation, offset, 0, io::ErrorKind::TimedOut)),
        }
    }
}

impl Device for Guarded {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        self.spend(Operation::Read, offset)?;
        self.inner.read(offset, buf, kind)
    }
    fn write(&self, mut offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        for buf in bufs {
            self.spend(Operation::Write, offset)?;
            self.inner.write_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        match kind.is_durable() {
            true => self.flush(),
            false => Ok(()),
        }
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.spend(Operation::Flush, 0)
    }
    fn discard(&self, offset: u64, _: u64) -> Result<(), DeviceError> {
        self.spend(Operation::Discard, offset)
    }
}
