//! A device whose flushes take their time, so that tests meet what happens while one is under way.

use crate::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Condvar, Mutex, Rank};
use std::time::Duration;

/// How long a flush takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// This long.
    Time(Duration),
    /// Until the test has done so many steps ([`GatedDevice::step`]), or until no step ended for the
    /// time of `patience`: then every thread of the test waits for the flush.
    Steps {
        /// Steps.
        steps: u64,
        /// How long a step may take that does not wait for the flush.
        patience: Duration,
    },
}

/// Wraps a device and holds back its flushes and durable writes; all else goes on meanwhile.
pub struct GatedDevice {
    inner: Arc<dyn Device>,
    pace: Pace,
    /// Steps done.
    steps: Mutex<u64>,
    moved: Condvar,
}

impl GatedDevice {
    /// Holds back the flushes of `inner`.
    pub fn new(inner: Arc<dyn Device>, pace: Pace) -> GatedDevice {
        let steps = Mutex::new(Rank::Bucket, 0);
        GatedDevice { inner, pace, steps, moved: Condvar::new() }
    }

    /// The test did a step.
    pub fn step(&self) {
        *self.steps.lock() += 1;
        self.moved.notify_all();
    }

    fn wait(&self) {
        let (wanted, patience) = match self.pace {
            Pace::Time(time) => return std::thread::sleep(time),
            Pace::Steps { steps, patience } => (steps, patience),
        };
        let mut steps = self.steps.lock();
        let (begun, mut seen) = (*steps, *steps);
        while *steps - begun < wanted {
            let notified = self.moved.wait_for(&mut steps, patience);
            if !notified && *steps == seen {
                return;
            }
            seen = *steps;
        }
    }
}

impl Device for GatedDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn alignment(&self) -> u32 {
        self.inner.alignment()
    }
    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.inner.write_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> Result<(), DeviceError> {
        self.inner.write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.wait();
        self.inner.flush()
    }
    fn write_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.wait();
        self.inner.write_durable_at(offset, buf)
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.write_zeros(offset, len)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RamDevice;
    use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_flush_waits_for_steps_and_writes_go_on_meanwhile() {
        let ram = Arc::new(RamDevice::create(4096).unwrap());
        let pace = Pace::Steps { steps: 3, patience: Duration::from_secs(600) };
        let gated = GatedDevice::new(ram, pace);
        let flushed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gated.flush().unwrap();
                flushed.store(true, Ordering::Release);
            });
            gated.write_at(0, &[7; 100]).unwrap();
            assert!(!flushed.load(Ordering::Acquire));
            // The flush may begin after some of the steps: it waits for three of its own.
            while !flushed.load(Ordering::Acquire) {
                gated.step();
                std::thread::yield_now();
            }
        });
        assert!(*gated.steps.lock() >= 3);
    }

    #[test]
    fn a_flush_ends_when_no_step_does() {
        let ram = Arc::new(RamDevice::create(4096).unwrap());
        let pace = Pace::Steps { steps: 3, patience: Duration::from_millis(1) };
        GatedDevice::new(ram, pace).flush().unwrap();
    }
}
