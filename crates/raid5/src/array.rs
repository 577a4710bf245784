//! The running array: a device whose data is on other devices.
//!
//! *Invariants*
//! - In every row whose parity is not in doubt (see `array/unsynced.rs`), parity is the XOR of the
//!   data, except while a range of the row is held exclusively.
//! - Acknowledged writes can be read back after any single member has failed.
//! - When a member fails an operation, the failure is recorded on all other members before the
//!   operation returns.
//! - Once writes are stopped, nothing is recorded any more: if a member then fails and is removed,
//!   the other members do not record its failure. Therefore each flush, and each write that leaves
//!   out a member, checks before it returns whether writes are stopped, and fails if they are.
//!
//! *Locking*: a thread takes a range of a row, then a unit of the row budget, then does member I/O.
//! The locks of the array's state and of the log's state are taken after the range and the unit,
//! and are held briefly.
//!
//! Reads are in `read.rs`, writes in `write.rs`, changes of members in `upkeep`. `array/setup.rs`
//! has what a start needs.
//!
//! *Active or clean* ([`Activity`]): four states are distinguished, so that writers need no lock
//! although the array may become clean at any time:
//!
//! - *on*: active;
//! - *resting*: recorded as active, but without a write since the last check;
//! - *off*: clean;
//! - *unsure*: the array was about to be recorded as clean, but a member could not be written.
//!
//! A writer takes its unit of the row budget, issues a memory fence, and reads the state. If the
//! state is *resting*, the writer exchanges it for *on*; if it is *off* or *unsure*, the writer
//! first records the array as active. The thread that makes the array clean first sets *resting*.
//! Later, when all units are released and everything is flushed, that thread exchanges *resting*
//! for *off*. If a writer set *on* in between, this exchange fails. A writer that comes after the
//! exchange finds the state *off*.

pub(crate) mod ram;
pub(crate) mod setup;
pub(crate) mod unsynced;

use crate::array::setup::{Consistency, MetadataStore, Setup};
use crate::array::unsynced::{Intents, Unsynced};
use crate::base::layout::{BLOCK, Geometry};
use crate::base::resources::{RowBudget, Scratch};
use crate::base::{ArrayError, Counters, Statistics};
use crate::log::{LogLocation, ParityLog, per_write};
use crate::members::flushing::FlushGate;
use crate::members::{Members, Standing, check_log, check_size};
use crate::rows::RowLocks;
use crate::rows::strip::Bytes;
use lanefs_device::{Device, DeviceError, Operation, ReadKind, WriteKind, check_range};
use lanefs_lanes::sync::atomic::{AtomicU8, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Mutex, MutexGuard, Padded, Rank};
use std::time::Duration;

/// The result of [`Array::status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The standing of each slot's member.
    pub members: Vec<Standing>,
    /// Rows whose parity may be wrong.
    pub unsynced_rows: u64,
    /// Whether an error stopped writes.
    pub stopped: bool,
    /// Whether the metadata records the array as active, that is, being written.
    pub active: bool,
}

/// A running array of level 5.
pub struct Array {
    pub(crate) shape: Geometry,
    pub(crate) members: Members,
    pub(crate) record: Arc<dyn MetadataStore>,
    pub(crate) rows: RowLocks,
    pub(crate) budget: RowBudget,
    pub(crate) counters: Counters,
    pub(crate) scratch: Scratch,
    pub(crate) gate: FlushGate,
    pub(crate) activity: Activity,
    pub(crate) unsynced: Unsynced,
    pub(crate) intents: Option<Intents>,
    /// The logs by slot; empty without a partial parity log.
    pub(crate) logs: Vec<Padded<ParityLog>>,
    /// Held while members, activity or intents change, both in memory and in the metadata.
    state: Mutex<()>,
    stopped: OnceLock<DeviceError>,
    pub(crate) flush_limit: Option<Duration>,
    alignment: u32,
    read_only: bool,
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl Array {
    /// Starts an array.
    ///
    /// # Errors
    /// [`ArrayError`] when a device is too small or more than one member is missing.
    pub fn start(setup: Setup) -> Result<Array, ArrayError> {
        let Setup { geometry: shape, members: given, record, consistency, .. } = setup;
        let members = Members::new(shape.members());
        let (mut alignment, mut read_only) = (1, false);
        for (slot, member) in given.into_iter().enumerate() {
            let Some(member) = member else { continue };
            check_size(&shape, slot, &member)?;
            if let (Consistency::PartialParity { .. }, log) = (&consistency, member.log) {
                check_log(slot, log, BLOCK)?;
            }
            alignment = alignment.max(member.device.alignment());
            read_only |= member.device.is_read_only();
            let rows = recovered_rows(&shape, member.recovered);
            members.put(slot, member, rows)?;
        }
        let missing = members.not_in_sync();
        if missing.count() > 1 {
            return Err(ArrayError::TooManyMissing { slots: missing });
        }
        let unsynced = Unsynced::new(&shape, &consistency, setup.unsynced_from);
        let intents = Intents::new(&shape, &consistency);
        let logs = match consistency {
            Consistency::PartialParity { signature } => {
                let slots = 0..members.count();
                let locations: Vec<_> =
                    slots.map(|slot| LogLocation::in_slot(&members, slot)).collect();
                let most = per_write(locations.iter().flatten().map(|location| location.area));
                let carries = setup.policies.log_carries;
                let log =
                    |(slot, location)| ParityLog::new(slot, signature, carries, most, location);
                locations.into_iter().enumerate().map(log).map(Padded).collect()
            }
            Consistency::Resync | Consistency::Bitmap { .. } => Vec::new(),
        };
        Ok(Array {
            members,
            record,
            rows: RowLocks::new(),
            budget: RowBudget::new(setup.policies.rows, setup.policies.stripe_wake),
            counters: Counters::new(),
            scratch: Scratch::new(),
            gate: FlushGate::new(),
            activity: Activity::new(setup.active),
            unsynced,
            intents,
            logs,
            state: Mutex::new(Rank::ArrayState, ()),
            stopped: OnceLock::new(),
            flush_limit: setup.policies.flush_limit,
            alignment,
            read_only,
            shape,
        })
    }

    /// Returns the array's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.shape
    }

    /// Returns what was counted since the array was started.
    pub fn statistics(&self) -> Statistics {
        self.counters.sums()
    }

    /// Returns the number of rows that may be written at once.
    pub fn row_budget(&self) -> usize {
        self.budget.rows()
    }

    /// Returns the status of the array and its members.
    pub fn status(&self) -> Status {
        Status {
            members: (0..self.members.count()).map(|slot| self.members.standing(slot)).collect(),
            unsynced_rows: self.unsynced.rows_left(),
            stopped: self.stopped.get().is_some(),
            active: self.activity.is_active(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ()> {
        self.state.lock()
    }

    pub(crate) fn refuse_if_stopped(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        match self.stopped.get() {
            Some(cause) => {
                let cause = cause.clone();
                Err(ArrayError::Stopped { cause }.during(Operation::Write, offset, len))
            }
            None => Ok(()),
        }
    }

    /// Returns an error if writes are stopped. Then the next start may need a device that failed
    /// here, since the failure may not be recorded: nothing may be written to it.
    pub(crate) fn refuse_changes_if_stopped(&self) -> Result<(), DeviceError> {
        // Writes are stopped after a failed record, and under the same lock.
        let _state = self.state();
        self.refuse_if_stopped(0, 0)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    pub(crate) fn stop_writes(&self, cause: &DeviceError) {
        let _ = self.stopped.set(cause.clone());
        self.logs.iter().for_each(|log| log.wake());
    }

    /// Returns the log of the member that has the parity of `row`.
    pub(crate) fn log_of(&self, row: u64) -> Option<&ParityLog> {
        self.logs.get(self.shape.parity_slot(row)).map(|log| &log.0)
    }
}

impl Device for Array {
    fn len(&self) -> u64 {
        self.shape.len()
    }

    fn alignment(&self) -> u32 {
        self.alignment
    }

    fn row_len(&self) -> u64 {
        self.shape.row_len()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, offset: u64, buf: &mut [u8], _: ReadKind) -> Result<(), DeviceError> {
        check_range(Operation::Read, offset, buf.len() as u64, self.len())?;
        self.read_rows(offset, buf)
    }

    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        let source = Bytes::new(bufs);
        let len = source.len();
        check_range(Operation::Write, offset, len, self.len())?;
        if self.read_only {
            let kind = std::io::ErrorKind::ReadOnlyFilesystem;
            return Err(DeviceError::new(Operation::Write, offset, len, kind));
        }
        // The members' caches are not bypassed.
        if !kind.is_durable() {
            return self.write_rows(&source, offset, WriteKind::Cached);
        }
        self.write_rows(&source, offset, WriteKind::Durable)?;
        self.store_bad_blocks()
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.refuse_if_stopped(0, 0)?;
        self.flush_members()
    }

    /// Checks the range, but discards nothing. It is unknown what a member would return for a
    /// discarded range, so parity might not match that data.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        check_range(Operation::Discard, offset, len, self.len())
    }
}

/// Returns how many rows are valid on a member that is rebuilt up to this byte.
fn recovered_rows(shape: &Geometry, bytes: u64) -> u64 {
    if bytes >= shape.member_len() { u64::MAX } else { bytes / shape.chunk() }
}

const OFF: u8 = 0;
const ON: u8 = 1;
const RESTING: u8 = 2;
const UNSURE: u8 = 3;

/// The result of [`Activity::rest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The state is *off*.
    Off,
    /// The state was *on*, and is now *resting*: there was a write since the last call.
    Began,
    /// The state was *resting* or *unsure* before the call, so there was no write since the last
    /// call, or since the start.
    Lasted,
}

#[derive(Debug)]
pub(crate) struct Activity(Padded<AtomicU8>);

impl Activity {
    pub(crate) fn new(active: bool) -> Activity {
        Activity(Padded(AtomicU8::new(if active { RESTING } else { OFF })))
    }

    pub(crate) fn is_active(&self) -> bool {
        self.0.load(Ordering::Relaxed) != OFF
    }

    /// Returns whether a write may continue; sets the state *resting* back to *on*.
    pub(crate) fn is_on(&self) -> bool {
        match self.0.load(Ordering::Acquire) {
            ON => true,
            RESTING => self.exchange(RESTING, ON) || self.0.load(Ordering::Acquire) == ON,
            _ => false,
        }
    }

    /// Sets the state to on. The caller has recorded the array as active.
    pub(crate) fn turn_on(&self) {
        self.0.store(ON, Ordering::Release);
    }

    /// Changes the state *on* to *resting*.
    pub(crate) fn rest(&self) -> Rest {
        if self.exchange(ON, RESTING) {
            return Rest::Began;
        }
        if self.0.load(Ordering::Acquire) == OFF { Rest::Off } else { Rest::Lasted }
    }

    /// Sets the state to off if there was no write since [`Activity::rest`], or if the state is
    /// unsure. Returns whether the state was set.
    pub(crate) fn clean(&self) -> bool {
        self.exchange(RESTING, OFF) || self.exchange(UNSURE, OFF)
    }

    /// Sets the state to unsure: the array could not be recorded as clean on all members. The next
    /// write must record the array as active. Until then, `Array::settle` and `Array::stop` try
    /// again to record the array as clean.
    ///
    /// # Locking
    /// The caller has held the lock of the array's state since [`Activity::clean`], so no writer
    /// can have set the state to on since then.
    pub(crate) fn unclean(&self) {
        self.0.store(UNSURE, Ordering::Release);
    }

    fn exchange(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}
