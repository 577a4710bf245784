//! Flushes, one at a time, shared by everybody whose writes they cover.
//!
//! A write is durable after a flush that was *submitted* after it completed. Lanes count the
//! writes that completed; a flush samples the sum before it is submitted. If a flush sampled at
//! least what I read after my write completed, it covers me: had my write completed after its
//! submission, each lane would have counted at least as much when I read it, and my own one more.
//! Two fences make that true of processors that reorder: one between counting my write and reading the
//! sum, one between sampling and submitting. Either mine comes first, and my write is covered; or the
//! other does, and I see all that was sampled.
//!
//! One at a time, for the host tells a failed flush to one caller only: a second one, in flight
//! beside it, may return success for writes that are lost. A failure sticks.

use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicI64, Ordering, fence};
use lanefs_lanes::{Condvar, LaneCounter, Mutex, Padded, Rank};

pub(crate) struct Flusher {
    device: Arc<dyn Device>,
    /// Data writes that completed.
    completed: LaneCounter,
    /// [rank Journal]
    state: Mutex<State>,
    /// A flush ended.
    ended: Condvar,
    /// `State::covered`, for who has nothing to wait for; `FAILED` once a flush has failed. On a line of its own, written by flushes alone.
    covered: Padded<AtomicI64>,
}

const FAILED: i64 = i64::MIN;

struct State {
    in_flight: bool,
    /// The largest sum that a successful flush sampled.
    covered: i64,
    failed: Option<DeviceError>,
}

impl Flusher {
    pub(crate) fn new(device: Arc<dyn Device>) -> Flusher {
        let state = State { in_flight: false, covered: 0, failed: None };
        Flusher {
            device,
            completed: LaneCounter::new(0),
            state: Mutex::new(Rank::Journal, state),
            ended: Condvar::new(),
            covered: Padded(AtomicI64::new(0)),
        }
    }

    /// A data write completed.
    pub(crate) fn note_write(&self) {
        self.completed.add(1);
    }

    /// Flushes. True, unless `flush_if_needed` found that nothing completed since the last one.
    pub(crate) fn flush(&self) -> Result<(), DeviceError> {
        self.exclusively(|_| true, |device| device.flush()).map(|_| ())
    }

    /// Flushes if a write completed since the last flush was submitted; says whether it did.
    pub(crate) fn flush_if_needed(&self) -> Result<bool, DeviceError> {
        fence(Ordering::SeqCst);
        let mine = self.completed.sum();
        // Acquire: what the flush covered is durable.
        if self.covered.load(Ordering::Acquire) >= mine {
            return Ok(false);
        }
        self.exclusively(|state| state.covered < mine, |device| device.flush())
    }

    /// A durable write; no flush is in flight beside it.
    pub(crate) fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.turn(|_| true, |device| device.write_durable_at(offset, bytes), |_, _| ()).map(|_| ())
    }

    fn exclusively(
        &self,
        needed: impl Fn(&State) -> bool,
        flush: impl FnOnce(&dyn Device) -> Result<(), DeviceError>,
    ) -> Result<bool, DeviceError> {
        self.turn(needed, flush, |state, sampled| state.covered = state.covered.max(sampled))
    }

    /// Waits for its turn; runs `io` if it is still needed then; `done` gets what had completed
    /// before it was submitted.
    fn turn(
        &self,
        needed: impl Fn(&State) -> bool,
        io: impl FnOnce(&dyn Device) -> Result<(), DeviceError>,
        done: impl FnOnce(&mut State, i64),
    ) -> Result<bool, DeviceError> {
        let mut state = self.state.lock();
        loop {
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            if !needed(&state) {
                return Ok(false);
            }
            if !state.in_flight {
                break;
            }
            self.ended.wait(&mut state);
        }
        state.in_flight = true;
        drop(state);
        let sampled = self.completed.sum();
        fence(Ordering::SeqCst);
        let result = io(&*self.device);
        let mut state = self.state.lock();
        state.in_flight = false;
        match &result {
            Ok(()) => {
                done(&mut state, sampled);
                self.covered.store(state.covered, Ordering::Release);
            }
            Err(error) => {
                state.failed = Some(error.clone());
                self.covered.store(FAILED, Ordering::Release);
            }
        }
        self.ended.notify_all();
        result.map(|()| true)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use lanefs_device::{Duration, Fault, FaultyDevice, Operation, RamDevice};

    fn faulty(fault: Option<Fault>) -> Arc<FaultyDevice> {
        Arc::new(FaultyDevice::new(Arc::new(RamDevice::create(4096).unwrap()), fault))
    }

    #[test]
    fn a_flush_is_submitted_only_if_a_write_completed_since_the_last() {
        let device = faulty(None);
        let flusher = Flusher::new(device.clone());
        assert!(!flusher.flush_if_needed().unwrap());
        flusher.note_write();
        assert!(flusher.flush_if_needed().unwrap());
        assert!(!flusher.flush_if_needed().unwrap());
        flusher.note_write();
        flusher.flush().unwrap();
        assert!(!flusher.flush_if_needed().unwrap());
        flusher.note_write();
        flusher.write_durable(0, &[1]).unwrap();
        assert!(flusher.flush_if_needed().unwrap(), "a durable write covers itself only");
        assert_eq!(device.count(Operation::Flush), 3);
    }

    #[test]
    fn a_failed_flush_fails_every_later_one() {
        let fault = Fault { operation: Operation::Flush, nth: 1, duration: Duration::Once };
        let flusher = Flusher::new(faulty(Some(fault)));
        assert!(flusher.flush().is_err());
        assert!(flusher.flush().is_err());
        assert!(flusher.flush_if_needed().is_err());
        assert!(flusher.write_durable(0, &[1]).is_err());
    }
}
