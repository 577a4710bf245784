//! A device that refuses writes after this computer has lost the right to write.

use crate::error::Error;
use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::OnceLock;
use std::io;

/// Wraps the device of a file system with the feature `mmp`. After [`GuardedDevice::stop`] no write
/// reaches the device, whether it comes from an operation, a commit, or the record of an abort.
pub(super) struct GuardedDevice {
    inner: Arc<dyn Device>,
    /// The reason why all writes are refused. Set at most once.
    stopped: OnceLock<String>,
}

impl GuardedDevice {
    pub(super) fn new(inner: Arc<dyn Device>) -> GuardedDevice {
        GuardedDevice { inner, stopped: OnceLock::new() }
    }

    /// Refuses all writes from now on, because of `why`.
    pub(super) fn stop(&self, why: &Error) {
        let _ = self.stopped.set(format!("no longer written: {why}"));
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    fn check(&self, op: Operation, offset: u64, len: u64) -> Result<(), DeviceError> {
        match self.stopped.get() {
            None => Ok(()),
            Some(why) => Err(DeviceError::new(op, offset, len, io::Error::other(why.clone()))),
        }
    }
}

impl Device for GuardedDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn lengthen(&self, len: u64) -> Result<(), DeviceError> {
        self.check(Operation::Write, len, 0)?;
        self.inner.lengthen(len)
    }
    fn alignment(&self) -> u32 {
        self.inner.alignment()
    }
    fn row_len(&self) -> u64 {
        self.inner.row_len()
    }
    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buf)
    }
    fn read_fresh_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_fresh_at(offset, buf)
    }
    fn read_data_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_data_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len() as u64)?;
        self.inner.write_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.check(Operation::Write, offset, len)?;
        self.inner.write_vectored_at(offset, bufs)
    }
    fn write_data_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len() as u64)?;
        self.inner.write_data_at(offset, buf)
    }
    fn write_log_at(&self, offset: u64, bufs: &[&[u8]]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.check(Operation::Write, offset, len)?;
        self.inner.write_log_at(offset, bufs)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.check(Operation::Flush, 0, 0)?;
        self.inner.flush()
    }
    fn write_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len() as u64)?;
        self.inner.write_durable_at(offset, buf)
    }
    fn write_log_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len() as u64)?;
        self.inner.write_log_durable_at(offset, buf)
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, len)?;
        self.inner.write_zeros(offset, len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check(Operation::Discard, offset, len)?;
        self.inner.discard(offset, len)
    }
}
