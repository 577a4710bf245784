//! A device that records every write and flush, so that tests can compute the states after a crash.

use crate::device::{Device, DeviceError, WriteKind};
use crate::forward;
use crate::overlay::OverlayDevice;
use crate::ram::RamDevice;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Rank};
use std::io;

/// An event on the device; its position in the recording is its sequence number.
#[derive(Debug, Clone)]
pub enum Event {
    /// A write returned.
    Write {
        /// Offset in bytes.
        offset: u64,
        /// The bytes written.
        data: Arc<[u8]>,
    },
    /// A durable write returned: it survives any later crash, but does not make earlier writes
    /// durable.
    DurableWrite {
        /// Offset in bytes.
        offset: u64,
        /// The bytes written.
        data: Arc<[u8]>,
    },
    /// A flush returned: the events numbered below `covers` are durable.
    Flush {
        /// The number of events when the flush was requested.
        covers: usize,
    },
}

/// Wraps a device and records its operations. The recording starts with a copy of the whole device.
///
/// An event is recorded when its operation returns. So a crash during a write is tested by the
/// crash states after that write: a crash state may lack the whole write, some of its sectors, or
/// nothing. Zeroing is recorded as a write of zeros. A discard is not recorded, since the contents
/// after it are undefined.
pub struct RecordingDevice {
    inner: Arc<dyn Device>,
    base: Arc<OverlayDevice>,
    events: Mutex<Vec<Event>>,
}

impl RecordingDevice {
    /// Starts to record the operations on `inner`.
    ///
    /// # Errors
    /// If `inner` cannot be read.
    pub fn new(inner: Arc<dyn Device>) -> io::Result<RecordingDevice> {
        let base = Arc::new(RamDevice::copy_of(&inner)?);
        Ok(RecordingDevice::since(OverlayDevice::new(base, u64::MAX), inner))
    }

    /// Starts to record the operations on `inner`, which has the contents of `base`. Nothing is
    /// copied, so this is cheap enough to record a recovery from each of many crash states.
    pub fn since(base: OverlayDevice, inner: Arc<dyn Device>) -> RecordingDevice {
        let events = Mutex::new(Rank::Bucket, Vec::new());
        RecordingDevice { inner, base: Arc::new(base), events }
    }

    /// Returns the number of events so far. A test reads this number after a promise has been made,
    /// for example after fsync has returned. The promise must then hold after a crash at this
    /// position of the recording, or at a later one.
    pub fn mark(&self) -> usize {
        self.events.lock().len()
    }

    /// Returns the recording so far.
    pub fn recording(&self) -> Recording {
        Recording { base: self.base.clone(), events: self.events.lock().clone() }
    }

    fn push(&self, event: Event) {
        self.events.lock().push(event);
    }
}

/// The base and the events of a [`RecordingDevice`].
#[derive(Debug, Clone)]
pub struct Recording {
    base: Arc<OverlayDevice>,
    events: Vec<Event>,
}

impl Recording {
    /// Returns the events, in the order in which the operations returned.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the device as it was at the start of the recording. The caller must not write to it.
    pub fn base(&self) -> &OverlayDevice {
        &self.base
    }
}

impl Device for RecordingDevice {
    forward!(inner: len, alignment, row_len, is_read_only, read, discard);
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.inner.write(offset, bufs, kind)?;
        let data = bufs.concat().into();
        self.push(match kind.is_durable() {
            true => Event::DurableWrite { offset, data },
            false => Event::Write { offset, data },
        });
        Ok(())
    }
    fn flush(&self) -> Result<(), DeviceError> {
        let covers = self.mark();
        self.inner.flush()?;
        self.push(Event::Flush { covers });
        Ok(())
    }
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.write_zeros(offset, len)?;
        let zeros = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        self.push(Event::Write { offset, data: zeros.into() });
        Ok(())
    }
}
