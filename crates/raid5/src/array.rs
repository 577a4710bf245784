//! The running array: a device made of devices.
//!
//! *Invariants*
//! - A row's parity is the exclusive or of its data whenever nobody holds a range of it exclusively,
//!   on every row whose parity is trusted.
//! - What is acknowledged can be read from the members that are left, whichever single one fails.
//! - A member that failed an operation is recorded as failed on the others before the operation in
//!   which it failed returns.
//!
//! *Locking*: a range of a row, then a unit of the row budget, then nothing but member I/O; the
//! array's state and the log's books are taken inside, for short.

use crate::activity::{Activity, Rest};
use crate::band::{Source, row_parts};
use crate::budget::{RowBudget, StripeWake};
use crate::correct::Unread;
use crate::counters::{Counters, Statistics};
use crate::gate::FlushGate;
use crate::intents::Intents;
use crate::parity_log::{LogHome, ParityLog, per_write};
use crate::rows::RowLocks;
use crate::scratch::Scratch;
use crate::standing::{LogArea, Member, MemberId, Members, Standing};
use crate::unsynced::Unsynced;
use crate::{ArrayError, BLOCK, Geometry, Record, Slots};
use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Mutex, MutexGuard, Padded, Rank};
use lanefs_ondisk::md::ppl::HEADER_SIZE;
use std::time::Duration;

/// How the array bridges a crash in the middle of a row's writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consistency {
    /// Not at all: every row's parity is found anew.
    Resync,
    /// The write-intent bitmap tells where.
    Bitmap {
        /// Bytes of a member's share that one bit stands for: a power of two.
        chunk: u64,
        /// The bits as the members have them, lowest first; set: to be resynchronised.
        bits: Vec<u8>,
    },
    /// The partial parity log makes it right without looking at other rows.
    PartialParity {
        /// What the array's log headers begin with.
        signature: u32,
    },
}

/// Choices that change no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policies {
    /// Who is woken when a unit of the row budget comes free.
    pub stripe_wake: StripeWake,
    /// Rows that may be under way at once. Each may take the memory of a row.
    pub rows: usize,
    /// Unfinished entries that a header of the partial parity log carries on at most; with 0 each
    /// header waits for a flush that finishes those of the one before, as md does.
    pub log_carries: usize,
    /// How long a member's flush may take before the member is failed, if the array can do without it;
    /// then each member is flushed by a thread of its own, all at once. `None`: for ever, by the thread
    /// that flushes the array.
    pub flush_limit: Option<Duration>,
}

impl Default for Policies {
    fn default() -> Policies {
        Policies { stripe_wake: StripeWake::One, rows: 256, log_carries: 32, flush_limit: None }
    }
}

/// What an array is started from.
pub struct Setup {
    /// Its shape.
    pub geometry: Geometry,
    /// Its members, by slot.
    pub members: Vec<Option<Member>>,
    /// Its metadata.
    pub record: Arc<dyn Record>,
    /// How it bridges a crash.
    pub consistency: Consistency,
    /// Whether its metadata says that it was being written.
    pub active: bool,
    /// Byte of the members' shares from which on parity may be wrong; `u64::MAX`: nowhere.
    pub unsynced_from: u64,
    /// Choices.
    pub policies: Policies,
}

/// What [`Array::status`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// How each slot's member stands.
    pub members: Vec<Standing>,
    /// Rows whose parity may be wrong.
    pub unsynced_rows: u64,
    /// Whether an error stopped writes.
    pub stopped: bool,
    /// Whether the metadata says that the array is being written.
    pub active: bool,
}

/// A running array of level 5.
pub struct Array {
    pub(crate) shape: Geometry,
    pub(crate) members: Members,
    pub(crate) record: Arc<dyn Record>,
    pub(crate) rows: RowLocks,
    pub(crate) budget: RowBudget,
    pub(crate) counters: Counters,
    pub(crate) scratch: Scratch,
    pub(crate) gate: FlushGate,
    pub(crate) activity: Activity,
    pub(crate) unsynced: Unsynced,
    pub(crate) intents: Option<Intents>,
    /// By slot; none without a partial parity log.
    pub(crate) logs: Vec<Padded<ParityLog>>,
    /// Guards changes of members, activity and intents, and their record.
    state: Mutex<()>,
    stopped: OnceLock<DeviceError>,
    pub(crate) flush_limit: Option<Duration>,
    alignment: u32,
    read_only: bool,
    #[cfg(shuttle)]
    pub(crate) planted: Option<Planted>,
}

/// A bug that a model-checking test asks for.
#[cfg(shuttle)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A failure is of whoever has the slot by now.
    FailsWhoHasTheSlot,
    /// A header of a log goes to whoever has the slot by now.
    LogsOnWhoHasTheSlot,
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// Whether a write is to be durable when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Cached,
    Durable,
}

/// A member failed an operation that the array can do without.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) member: MemberId,
    pub(crate) error: DeviceError,
    /// What could not be read, if that is what failed.
    pub(crate) unread: Option<Unread>,
}

impl Lost {
    pub(crate) fn new(member: MemberId, error: DeviceError) -> Lost {
        Lost { member, error, unread: None }
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
                let homes: Vec<_> = slots.map(|slot| LogHome::of(&members, slot)).collect();
                let most = per_write(homes.iter().flatten().map(|home| home.area));
                let carries = setup.policies.log_carries;
                let log = |(slot, home)| ParityLog::new(slot, signature, carries, most, home);
                homes.into_iter().enumerate().map(log).map(Padded).collect()
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
            #[cfg(shuttle)]
            planted: None,
            shape,
        })
    }

    /// Its shape.
    pub fn geometry(&self) -> &Geometry {
        &self.shape
    }

    /// What was counted since the start.
    pub fn statistics(&self) -> Statistics {
        self.counters.sums()
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        Status {
            members: (0..self.members.count()).map(|slot| self.members.standing(slot)).collect(),
            unsynced_rows: self.unsynced.rows_left(&self.shape),
            stopped: self.stopped.get().is_some(),
            active: self.activity.is_active(),
        }
    }

    /// Takes the member in `slot` out as failed.
    ///
    /// # Errors
    /// If there is no such slot, the array cannot do without it, or that cannot be recorded; only the
    /// last stops writes.
    pub fn fail(&self, slot: usize) -> Result<(), DeviceError> {
        if slot >= self.members.count() {
            return Err(ArrayError::NoSuchSlot { slot }.of(Operation::Write, 0, 0));
        }
        let _state = self.state();
        let after = self.members.not_in_sync() | Slots::one(slot);
        if after.count() > 1 {
            let error = ArrayError::TooManyMissing { slots: after };
            return Err(error.of(Operation::Write, 0, 0));
        }
        self.lose_locked(slot, None)
    }

    /// Flushes, and records that the array is clean, unless somebody is writing.
    ///
    /// # Errors
    /// What the flush or the record says.
    pub fn stop(&self) -> Result<(), DeviceError> {
        self.flush()?;
        // Twice: the first look only tells which bits are idle.
        self.clear_idle_bits()?;
        self.clear_idle_bits()?;
        match self.activity.rest() {
            Rest::Off => Ok(()),
            Rest::Began | Rest::Lasted => self.clean(),
        }
    }

    /// Clears the bits of the bitmap, and records that the array is clean, where nobody wrote since
    /// the last call and all parity is right. To be called from time to time.
    ///
    /// # Errors
    /// What the flush or the record says.
    pub fn settle(&self) -> Result<(), DeviceError> {
        self.clear_idle_bits()?;
        match self.activity.rest() {
            Rest::Off | Rest::Began => Ok(()),
            Rest::Lasted => self.clean(),
        }
    }

    fn clean(&self) -> Result<(), DeviceError> {
        if self.read_only || self.stopped.get().is_some() || !self.budget.all_at_home() {
            return Ok(());
        }
        self.flush()?;
        if self.unsynced.any() {
            return Ok(());
        }
        let _state = self.state();
        if !self.activity.clean() {
            return Ok(());
        }
        let lost = self.record.mark_clean().inspect_err(|_| self.activity.unclean())?;
        self.note(lost)
    }

    /// Before the first write of a row's range: what a crash from now on will need is recorded.
    pub(crate) fn begin(&self) -> Result<(), DeviceError> {
        if self.activity.is_on() {
            return Ok(());
        }
        let _state = self.state();
        if self.activity.is_on() {
            return Ok(());
        }
        let lost = self.record.mark_active().inspect_err(|e| self.stop_writes(e))?;
        self.note(lost)?;
        self.activity.turn_on();
        Ok(())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ()> {
        self.state.lock()
    }

    pub(crate) fn refuse_if_stopped(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        match self.stopped.get() {
            Some(cause) => {
                let cause = cause.clone();
                Err(ArrayError::Stopped { cause }.of(Operation::Write, offset, len))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    pub(crate) fn stop_writes(&self, cause: &DeviceError) {
        let _ = self.stopped.set(cause.clone());
        self.logs.iter().for_each(|log| log.wake());
    }

    /// A member failed: it is recorded and done without, or the array's writes stop.
    ///
    /// One that was taken out before is recorded already, and whoever has its slot by now has done
    /// nothing.
    pub(crate) fn lose(&self, lost: Lost) -> Result<(), DeviceError> {
        let _state = self.state();
        #[cfg(shuttle)]
        if self.planted == Some(Planted::FailsWhoHasTheSlot) {
            return self.lose_locked(lost.member.slot, Some(&lost));
        }
        match self.members.still(lost.member) {
            None => Ok(()),
            Some(member) => self.lose_locked(member.id.slot, Some(&lost)),
        }
    }

    /// # Locking
    /// The caller holds the state.
    fn lose_locked(&self, slot: usize, why: Option<&Lost>) -> Result<(), DeviceError> {
        if self.members.present(slot).is_none() {
            return Ok(());
        }
        let after = self.members.not_in_sync() | Slots::one(slot);
        if after.count() > 1 {
            let error = ArrayError::TooManyMissing { slots: after }.of(Operation::Write, 0, 0);
            let error = why.map_or(error, |lost| lost.error.clone());
            // What cannot be read is an error of that read and no more: another member may have
            // failed since it was tried.
            if why.is_none_or(|lost| lost.unread.is_none()) {
                self.stop_writes(&error);
            }
            return Err(error);
        }
        let lost = Slots::one(slot);
        let more = self.record.fail_members(lost).inspect_err(|e| self.stop_writes(e))?;
        self.note(lost | more)
    }

    /// Takes note of members whose failure was recorded already.
    ///
    /// # Locking
    /// The caller holds the state.
    pub(crate) fn note(&self, lost: Slots) -> Result<(), DeviceError> {
        for slot in lost.iter() {
            self.members.remove(slot);
            if let Some(log) = self.logs.get(slot) {
                log.move_to(None);
            }
        }
        let missing = self.members.not_in_sync();
        if !lost.is_empty() && missing.count() > 1 {
            let error = ArrayError::TooManyMissing { slots: missing }.of(Operation::Write, 0, 0);
            self.stop_writes(&error);
            return Err(error);
        }
        Ok(())
    }

    /// The log of the member that has the parity of `row`.
    pub(crate) fn log_of(&self, row: u64) -> Option<&ParityLog> {
        self.logs.get(self.shape.parity_slot(row)).map(|log| &log.0)
    }

    /// Changes the metadata while who is a member does not change.
    pub(crate) fn recording(
        &self,
        change: impl FnOnce() -> Result<Slots, DeviceError>,
    ) -> Result<(), DeviceError> {
        let _state = self.state();
        self.note(change()?)
    }

    /// Puts a member into `slot`, whoever has it; it has its share of the rows below `rows`.
    ///
    /// # Locking
    /// The caller holds the state.
    pub(crate) fn install(&self, slot: usize, member: Member, rows: u64) -> Result<(), ArrayError> {
        self.members.put(slot, member, rows)?;
        if let Some(log) = self.logs.get(slot) {
            log.move_to(LogHome::of(&self.members, slot));
        }
        Ok(())
    }

    /// Whether the array can use the device in `slot`.
    pub(crate) fn check_member(&self, slot: usize, member: &Member) -> Result<(), ArrayError> {
        check_size(&self.shape, slot, member)?;
        match self.logs.get(slot) {
            Some(log) => check_log(slot, member.log, log.per_write()),
            None => Ok(()),
        }
    }

    /// Waits for log headers that are being written to members that lost `slot`: so that they do
    /// not arrive in the log of the next, if that is the same device.
    pub(crate) fn await_log_of(&self, slot: usize) {
        if let Some(log) = self.logs.get(slot) {
            log.await_writers();
        }
    }

    /// Whether this device had `slot`, or has it.
    pub(crate) fn had(&self, slot: usize, device: &Arc<dyn Device>) -> bool {
        self.members.had(slot, device)
    }

    fn check(&self, operation: Operation, offset: u64, len: u64) -> Result<(), DeviceError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.shape.len() => Ok(()),
            _ => {
                let kind = std::io::ErrorKind::UnexpectedEof;
                Err(DeviceError::new(operation, offset, len, kind))
            }
        }
    }

    fn write(&self, offset: u64, bufs: &[&[u8]], how: Durability) -> Result<(), DeviceError> {
        let source = Source::new(bufs);
        let len = source.len();
        self.check(Operation::Write, offset, len)?;
        if self.read_only {
            let kind = std::io::ErrorKind::ReadOnlyFilesystem;
            return Err(DeviceError::new(Operation::Write, offset, len, kind));
        }
        for part in row_parts(&self.shape, offset, len) {
            self.write_row(part, &source, how)?;
        }
        Ok(())
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

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(Operation::Read, offset, buf.len() as u64)?;
        self.read(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, &[buf], Durability::Cached)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> Result<(), DeviceError> {
        self.write(offset, bufs, Durability::Cached)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.refuse_if_stopped(0, 0)?;
        self.flush_members()
    }

    fn write_durable_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, &[buf], Durability::Durable)
    }

    /// Does nothing: members may or may not give zeros afterwards, and parity has to match.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.check(Operation::Discard, offset, len)
    }
}

/// Rows that a member has its share of, when it is rebuilt up to this byte.
fn recovered_rows(shape: &Geometry, bytes: u64) -> u64 {
    if bytes >= shape.member_len() { u64::MAX } else { bytes / shape.chunk() }
}

/// A log holds a header and the partial parity of one write: then every write can be logged.
fn check_log(slot: usize, log: Option<LogArea>, per_write: u64) -> Result<(), ArrayError> {
    let needed = HEADER_SIZE as u64 + per_write;
    match log {
        Some(log) if log.len >= needed => Ok(()),
        _ => Err(ArrayError::TooSmall { slot, len: log.map_or(0, |l| l.len), needed }),
    }
}

fn check_size(shape: &Geometry, slot: usize, member: &Member) -> Result<(), ArrayError> {
    let len = member.device.len();
    let log = member.log.map_or(0, |log| log.offset.saturating_add(log.len));
    let needed = member.data_offset.saturating_add(shape.member_len()).max(log);
    if needed > len { Err(ArrayError::TooSmall { slot, len, needed }) } else { Ok(()) }
}
