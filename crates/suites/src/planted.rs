//! Devices with a planted fault, which a suite must find.

use lanefs_device::{Device, DeviceError, WriteKind, forward};
use std::sync::Arc;

/// A write is damaged if its first byte modulo 32 equals this number. The choice depends only on
/// the data, so the same operations always lead to the same damaged writes.
const MARK: u8 = 1;

/// A fault that the device does not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The device flips a bit in some writes.
    FlippedBit,
    /// The device reports success for flushes that it does not perform.
    LostFlush,
}

/// A device with a bug.
pub struct Planted {
    bug: Bug,
    inner: Arc<dyn Device>,
}

impl Planted {
    /// Wraps `inner`.
    pub fn new(bug: Bug, inner: Arc<dyn Device>) -> Planted {
        Planted { bug, inner }
    }
}

impl Device for Planted {
    forward!(inner: len, is_read_only, read, discard);
    fn write(&self, mut offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        if self.bug == Bug::LostFlush {
            return self.inner.write(offset, bufs, kind);
        }
        for buf in bufs {
            let mut bytes = buf.to_vec();
            if buf.first().is_some_and(|byte| byte % 32 == MARK) {
                bytes[buf.len() / 2] ^= 0x10;
            }
            self.inner.write_at(offset, &bytes)?;
            offset += buf.len() as u64;
        }
        match kind.is_durable() {
            true => self.flush(),
            false => Ok(()),
        }
    }
    fn flush(&self) -> Result<(), DeviceError> {
        match self.bug {
            Bug::LostFlush => Ok(()),
            Bug::FlippedBit => self.inner.flush(),
        }
    }
}
