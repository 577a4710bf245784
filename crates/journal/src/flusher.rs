//! Runs flushes one at a time. A flush is shared by all threads whose writes it covers.
//!
//! A write is durable after a flush that was *submitted* after the write completed. Flushes have
//! numbers. A completed write gets as its mark the number of the next flush to be submitted. That
//! flush and every later flush cover the write. On processors that reorder memory accesses, two
//! fences make this true. One fence is between the write and reading the number of the last flush;
//! the other is between storing the number of a new flush and submitting it. If the writer reads
//! the number of the last flush before a new flush stores its own number, the new flush is
//! submitted after the write completed. Otherwise the mark is the number after that of the new
//! flush.
//!
//! Each inode keeps the mark of its last write (in crate `ext4`). So an fsync waits only for the
//! writes of its inode. The other words that an fsync reads are written only by flushes. Each lane
//! keeps a mark too, for a caller that wants all writes durable.
//!
//! Flushes run one at a time, because the host reports lost writes to only one caller. A second
//! concurrent flush may return success although writes are lost. After a failure all later flushes
//! fail.

use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering, fence};
use lanefs_lanes::{Condvar, Mutex, Padded, PerLane, Rank};

/// The number of the first flush that covers a write. Mark 0 means that no flush is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushMark(pub u64);

pub(crate) struct Flusher {
    device: Arc<dyn Device>,
    /// For each lane, the largest [`FlushMark`] of the data writes that its threads made.
    marks: PerLane<AtomicU64>,
    /// [rank Journal]
    state: Mutex<State>,
    /// Notified when a flush is complete.
    ended: Condvar,
    /// The numbers are on cache lines of their own, which only flushes write.
    numbers: Padded<Numbers>,
}

struct Numbers {
    /// The number of the last flush that was submitted or is about to be submitted.
    submitted: AtomicU64,
    /// A copy of `State::covered`, from which a caller can see without the lock that it need not
    /// wait. The copy is set to 0 when a flush has failed.
    covered: AtomicU64,
}

struct State {
    in_flight: bool,
    /// The number of the last flush that succeeded.
    covered: FlushMark,
    failed: Option<DeviceError>,
}

/// An operation that the flusher runs on the device. At most one such operation runs at a time.
enum Io<'a> {
    Flush,
    WriteDurable { offset: u64, bytes: &'a [u8] },
}

impl Flusher {
    pub(crate) fn new(device: Arc<dyn Device>) -> Flusher {
        let state = State { in_flight: false, covered: FlushMark(0), failed: None };
        let numbers = Numbers { submitted: AtomicU64::new(0), covered: AtomicU64::new(0) };
        Flusher {
            device,
            marks: PerLane::new(|_| AtomicU64::new(0)),
            state: Mutex::new(Rank::Journal, state),
            ended: Condvar::new(),
            numbers: Padded(numbers),
        }
    }

    /// Records that a data write completed; returns the mark of the flush that it needs.
    pub(crate) fn note_write(&self) -> FlushMark {
        fence(Ordering::SeqCst);
        let mark = self.numbers.submitted.load(Ordering::Relaxed) + 1;
        let mine = self.marks.mine();
        if mine.load(Ordering::Relaxed) < mark {
            mine.fetch_max(mark, Ordering::Release);
        }
        FlushMark(mark)
    }

    /// Returns the largest mark of all completed writes.
    pub(crate) fn last_write(&self) -> FlushMark {
        let newest = self.marks.iter().map(|mark| mark.load(Ordering::Acquire)).max();
        FlushMark(newest.unwrap_or(0))
    }

    pub(crate) fn flush(&self) -> Result<(), DeviceError> {
        self.turn(|_| true, &Io::Flush).map(|_| ())
    }

    /// Flushes, unless a flush that covers `mark` has succeeded; returns whether this call flushed.
    pub(crate) fn flush_if_needed(&self, mark: FlushMark) -> Result<bool, DeviceError> {
        // Acquire: the flush with this number ended before this read, so all writes that it covered
        // are durable.
        if self.numbers.covered.load(Ordering::Acquire) >= mark.0 {
            return Ok(false);
        }
        self.turn(|state| state.covered < mark, &Io::Flush)
    }

    /// Makes a durable write to the log; no flush runs concurrently.
    pub(crate) fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.turn(|_| true, &Io::WriteDurable { offset, bytes }).map(|_| ())
    }

    /// Waits until no other operation runs, then runs `io` if `needed` still returns true. Returns
    /// whether `io` was run.
    fn turn(&self, needed: impl Fn(&State) -> bool, io: &Io<'_>) -> Result<bool, DeviceError> {
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
        let mut covered = state.covered;
        drop(state);
        let result = match *io {
            Io::Flush => {
                // Flushes run one at a time, so no other thread changes `submitted`.
                covered = FlushMark(self.numbers.submitted.load(Ordering::Relaxed) + 1);
                self.numbers.submitted.store(covered.0, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                self.device.flush()
            }
            Io::WriteDurable { offset, bytes } => self.device.write_log_durable_at(offset, bytes),
        };
        let mut state = self.state.lock();
        state.in_flight = false;
        match &result {
            Ok(()) => {
                state.covered = covered;
                self.numbers.covered.store(covered.0, Ordering::Release);
            }
            Err(error) => {
                state.failed = Some(error.clone());
                self.numbers.covered.store(0, Ordering::Release);
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
    fn a_flush_is_submitted_only_for_a_write_that_completed_since_the_last() {
        let device = faulty(None);
        let flusher = Flusher::new(device.clone());
        assert!(!flusher.flush_if_needed(flusher.last_write()).unwrap());
        let first = flusher.note_write();
        assert_eq!(first, flusher.last_write());
        assert!(flusher.flush_if_needed(first).unwrap());
        assert!(!flusher.flush_if_needed(first).unwrap());
        let second = flusher.note_write();
        assert!(!flusher.flush_if_needed(first).unwrap(), "the first is durable already");
        flusher.flush().unwrap();
        assert!(!flusher.flush_if_needed(second).unwrap());
        let third = flusher.note_write();
        flusher.write_durable(0, &[1]).unwrap();
        assert!(flusher.flush_if_needed(third).unwrap(), "a durable write covers itself only");
        assert_eq!(device.count(Operation::Flush), 3);
    }

    #[test]
    fn a_failed_flush_fails_every_later_one() {
        let fault = Fault { operation: Operation::Flush, nth: 1, duration: Duration::Once };
        let flusher = Flusher::new(faulty(Some(fault)));
        let mark = flusher.note_write();
        assert!(flusher.flush().is_err());
        assert!(flusher.flush().is_err());
        assert!(flusher.flush_if_needed(mark).is_err());
        assert!(flusher.write_durable(0, &[1]).is_err());
    }
}
