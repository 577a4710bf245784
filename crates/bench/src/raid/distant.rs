//! A device in memory with the latency of a disk.

use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
use std::time::Duration;

/// A device on which each operation first sleeps. Like waiting for a disk, sleeping takes no CPU
/// time.
pub(super) struct Distant {
    pub(super) below: Arc<dyn Device>,
    pub(super) latency: Duration,
}

impl Distant {
    fn wait(&self) -> &dyn Device {
        std::thread::sleep(self.latency);
        &*self.below
    }
}

impl Device for Distant {
    fn len(&self) -> u64 {
        self.below.len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.wait().read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.wait().write_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> Result<(), DeviceError> {
        self.wait().write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.wait().flush()
    }
    fn write_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.wait().write_durable_at(offset, buf)
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.wait().write_zeros(offset, len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.wait().discard(offset, len)
    }
}
