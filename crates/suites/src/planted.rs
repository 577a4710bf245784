//! Devices with a planted fault: a suite that does not find it is blind.

use lanefs_device::{Device, DeviceError};
use std::sync::Arc;

/// Flips one bit of every write whose first byte divided by 32 leaves this: the same writes in
/// every run of the same story.
const MARK: u8 = 1;

/// A device that damages what is written, now and then, and says nothing.
pub struct FlippedBit(Arc<dyn Device>);

impl FlippedBit {
    /// Around `inner`.
    pub fn new(inner: Arc<dyn Device>) -> FlippedBit {
        FlippedBit(inner)
    }
}

impl Device for FlippedBit {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        if buf.first().is_none_or(|byte| byte % 32 != MARK) {
            return self.0.write_at(offset, buf);
        }
        let mut damaged = buf.to_vec();
        damaged[buf.len() / 2] ^= 0x10;
        self.0.write_at(offset, &damaged)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.0.discard(offset, len)
    }
}

/// A device that says it flushed and did not.
pub struct LostFlush(Arc<dyn Device>);

impl LostFlush {
    /// Around `inner`.
    pub fn new(inner: Arc<dyn Device>) -> LostFlush {
        LostFlush(inner)
    }
}

impl Device for LostFlush {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn write_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.0.write_durable_at(offset, buf)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.0.discard(offset, len)
    }
}
