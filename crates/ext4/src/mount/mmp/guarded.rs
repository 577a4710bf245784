//! A device that refuses writes after this computer has lost the right to write.

use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Mutex, Rank};
use lanefs_plan::Error;
use std::io;

/// Wraps the device of a file system with the feature `mmp`. After [`GuardedDevice::stop`] no write
/// reaches the device, whether it comes from an operation, a commit, or the record of an abort.
pub(super) struct GuardedDevice {
    inner: Arc<dyn Device>,
    /// The reason why all writes are refused. Set at most once.
    stopped: OnceLock<String>,
    /// Held while the MMP block is stored. [rank Load]
    storing: Mutex<()>,
}

impl GuardedDevice {
    pub(super) fn new(inner: Arc<dyn Device>) -> GuardedDevice {
        let storing = Mutex::new(Rank::Load, ());
        GuardedDevice { inner, stopped: OnceLock::new(), storing }
    }

    /// Stores the MMP block with `store`. If that fails, refuses all writes from now on; returns
    /// `None`.
    pub(super) fn store<T>(&self, store: impl FnOnce() -> Result<T, Error>) -> Option<T> {
        let _storing = self.storing.lock();
        store().inspect_err(|why| drop(self.stopped.set(format!("no longer written: {why}")))).ok()
    }

    /// Returns the result of a flush or a durable write. The host may report lost writes to only
    /// one caller. If that was the thread that stores the MMP block, the flush fails too.
    fn settle(&self, op: Operation, offset: u64, len: u64) -> Result<(), DeviceError> {
        drop(self.storing.lock());
        self.check(op, offset, len)
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
        self.inner.flush()?;
        self.settle(Operation::Flush, 0, 0)
    }
    fn write_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len() as u64)?;
        self.inner.write_durable_at(offset, buf)?;
        self.settle(Operation::Write, offset, buf.len() as u64)
    }
    fn write_log_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len() as u64)?;
        self.inner.write_log_durable_at(offset, buf)?;
        self.settle(Operation::Write, offset, buf.len() as u64)
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use lanefs_device::{RamDevice, forward};
    use lanefs_lanes::sync::Weak;

    /// A device that reports a lost write to the MMP thread while a flush runs.
    struct Host {
        inner: RamDevice,
        guarded: OnceLock<Weak<GuardedDevice>>,
    }

    impl Device for Host {
        forward!(inner: len, is_read_only, read_at, write_at, discard);
        fn flush(&self) -> Result<(), DeviceError> {
            let guarded = self.guarded.get().and_then(Weak::upgrade).expect("alive");
            let lost = DeviceError::new(Operation::Write, 0, 0, io::ErrorKind::Other);
            assert!(guarded.store(|| Err::<(), _>(lost.into())).is_none());
            Ok(())
        }
    }

    #[test]
    fn a_flush_fails_if_the_mmp_thread_got_its_report() {
        let inner = RamDevice::create(4096).unwrap();
        let host = Arc::new(Host { inner, guarded: OnceLock::new() });
        let guarded = Arc::new(GuardedDevice::new(host.clone()));
        host.guarded.set(Arc::downgrade(&guarded)).unwrap();
        let told = guarded.write_durable_at(0, &[1]).expect_err("the write may be lost");
        assert!(told.to_string().contains("no longer written"), "{told}");
        assert!(guarded.flush().is_err() && guarded.is_stopped());
    }
}
