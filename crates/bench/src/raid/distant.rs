//! A device in memory with the latency of a disk.

use lanefs_device::{Device, DeviceError, ReadKind, WriteKind};
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
    fn read(&self, offset: u64, buf: &mut [u8], kind: ReadKind) -> Result<(), DeviceError> {
        self.wait().read(offset, buf, kind)
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.wait().write(offset, bufs, kind)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.wait().flush()
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.wait().write_zeros(offset, len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.wait().discard(offset, len)
    }
}
