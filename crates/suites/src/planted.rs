//! Devices with a planted fault, which a suite must find.

use lanefs_device::{Device, DeviceError, forward};
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
    forward!(inner: len, is_read_only, read_at, discard);
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        if self.bug != Bug::FlippedBit || buf.first().is_none_or(|byte| byte % 32 != MARK) {
            return self.inner.write_at(offset, buf);
        }
        let mut damaged = buf.to_vec();
        damaged[buf.len() / 2] ^= 0x10;
        self.inner.write_at(offset, &damaged)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        match self.bug {
            Bug::LostFlush => Ok(()),
            Bug::FlippedBit => self.inner.flush(),
        }
    }
    fn write_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        match self.bug {
            Bug::LostFlush => self.inner.write_durable_at(offset, buf),
            Bug::FlippedBit => {
                self.write_at(offset, buf)?;
                self.flush()
            }
        }
    }
}
