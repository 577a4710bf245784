//! A device with slow flushes, so that tests can act during a flush.

use crate::device::{Device, DeviceError, WriteKind};
use crate::forward;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Condvar, Mutex, Rank};
use std::time::Duration;

/// The duration of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A flush takes this time.
    Time(Duration),
    /// A flush returns after the test has done this many steps ([`GatedDevice::step`]). It also
    /// returns if no step is completed for the time `patience`, because every thread of the test is
    /// then assumed to wait for the flush.
    Steps {
        /// The number of steps.
        steps: u64,
        /// If no step is completed for this time, the flush returns.
        patience: Duration,
    },
}

/// Wraps a device and holds back its flushes and durable writes; other operations continue
/// meanwhile.
pub struct GatedDevice {
    inner: Arc<dyn Device>,
    pace: Pace,
    progress: Mutex<Progress>,
    moved: Condvar,
}

/// Steps and held operations.
#[derive(Default)]
struct Progress {
    /// Steps done.
    steps: u64,
    /// Flushes and durable writes that are held back.
    held: u64,
}

impl GatedDevice {
    /// Holds back the flushes of `inner`.
    pub fn new(inner: Arc<dyn Device>, pace: Pace) -> GatedDevice {
        let progress = Mutex::new(Rank::Bucket, Progress::default());
        GatedDevice { inner, pace, progress, moved: Condvar::new() }
    }

    /// Counts a step of the test.
    pub fn step(&self) {
        self.progress.lock().steps += 1;
        self.moved.notify_all();
    }

    /// Returns whether a flush or a durable write is held back now.
    pub fn is_holding(&self) -> bool {
        self.progress.lock().held > 0
    }

    fn hold(&self) {
        self.progress.lock().held += 1;
        match self.pace {
            Pace::Time(time) => std::thread::sleep(time),
            Pace::Steps { steps, patience } => self.wait_for_steps(steps, patience),
        }
        self.progress.lock().held -= 1;
    }

    fn wait_for_steps(&self, wanted: u64, patience: Duration) {
        let mut progress = self.progress.lock();
        let (begun, mut seen) = (progress.steps, progress.steps);
        while progress.steps - begun < wanted {
            let notified = self.moved.wait_for(&mut progress, patience);
            if !notified && progress.steps == seen {
                return;
            }
            seen = progress.steps;
        }
    }
}

impl Device for GatedDevice {
    forward!(inner: len, alignment, is_read_only, read, write_zeros, discard);
    fn flush(&self) -> Result<(), DeviceError> {
        self.hold();
        self.inner.flush()
    }
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        if kind.is_durable() {
            self.hold();
        }
        self.inner.write(offset, bufs, kind)
    }
}

#[cfg(test)]
mod tests;
