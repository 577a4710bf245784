//! A member in memory, for tests that explore the schedules of threads.

use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::sync::unscheduled::Mutex;

/// A member in memory that can be set to fail all later operations.
pub(crate) struct Memory {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) broken: AtomicBool,
}

impl Memory {
    pub(crate) fn new(len: u64) -> Arc<Memory> {
        Arc::new(Memory {
            bytes: Mutex::new(vec![0; len as usize]),
            broken: AtomicBool::new(false),
        })
    }

    fn check(&self, operation: Operation, offset: u64) -> Result<(), DeviceError> {
        // This load is a step of the schedule, so other threads may run between the call and its
        // result.
        if self.broken.load(Ordering::Relaxed) {
            let error = std::io::Error::other("broken");
            return Err(DeviceError::new(operation, offset, 0, error));
        }
        Ok(())
    }
}

impl Device for Memory {
    fn len(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(Operation::Read, offset)?;
        let from = offset as usize;
        buf.copy_from_slice(&self.bytes.lock().unwrap()[from..from + buf.len()]);
        Ok(())
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset)?;
        let from = offset as usize;
        self.bytes.lock().unwrap()[from..from + buf.len()].copy_from_slice(buf);
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.check(Operation::Flush, 0)
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}
