//! Long work on a running array: rebuild of a member, resync after a crash, scrub.
//!
//! Each kind of work goes row by row and holds the whole row exclusively; reads and writes of other
//! rows continue. Progress is recorded at intervals, after a flush, so that the work resumes from
//! the recorded row after a stop or a crash.

use crate::array::Array;
use crate::assembly::error::AssembleError;
use crate::assembly::metadata::AssignError;
use crate::base::layout::{BLOCK, Slots};
use crate::base::{ArrayError, Count, is_full};
use crate::members::{Lost, Member, MemberId, Present, ReadError, Standing, Stretch};
use crate::rows::{Mode, RowHold, Span};
use lanefs_device::{DeviceError, Operation};
use lanefs_ondisk::md::Recovery;
use std::ops::{ControlFlow, Range};

/// Bytes of a member's data area between two records of progress.
const CHECKPOINT: u64 = 64 << 20;

/// The progress of long work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of each member's data area that are done.
    pub done: u64,
    /// The length of each member's data area in bytes.
    pub total: u64,
}

/// Whether maintenance work, such as a rebuild, was completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The work is done.
    Done,
    /// The callback stopped the work; progress is recorded.
    Stopped,
}

/// The rows that a rebuild writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuild {
    /// All rows: the member is new.
    Whole,
    /// The rows whose bits are set in the write-intent bitmap: a former member missed only these
    /// rows.
    Intended,
}

/// The reaction of a scrub to wrong parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrub {
    /// The scrub counts wrong parity.
    Check,
    /// The scrub counts wrong parity, and writes parity computed from the data.
    Repair,
}

/// The result of a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubReport {
    /// Number of rows, including those that were skipped.
    pub rows: u64,
    /// Rows that could not be checked because a member is missing.
    pub skipped: u64,
    /// Blocks of 4 KiB whose parity was wrong.
    pub wrong_blocks: u64,
    /// The number of rows that contain blocks with wrong parity.
    pub wrong_rows: u64,
    /// Positions of blocks of 4 KiB that could not be checked, since a member could not read its
    /// block there and the block could not be corrected.
    pub unreadable_blocks: u64,
}

/// The result of a check of a row.
#[derive(Debug, Default)]
struct Checked {
    /// The number of blocks with wrong parity.
    wrong: u64,
    /// The offset of each block that could not be checked, and the reason.
    unreadable: Vec<(u64, DeviceError)>,
}

/// The progress of a rebuild, to be recorded.
enum Recovered {
    /// The rows that are valid by now.
    SoFar,
    /// The member is in sync.
    Wholly,
}

pub(crate) fn gone(slot: usize) -> DeviceError {
    ArrayError::Gone { slot }.during(Operation::Write, 0, 0)
}

pub(crate) type Callback<'c> = &'c mut dyn FnMut(Progress) -> ControlFlow<()>;

impl Array {
    /// Puts a member into an empty slot, after the metadata has recorded that the member has this
    /// slot. No row of the member is valid until the rebuild makes it valid. The value of
    /// `member.recovered` is ignored, since any row may have been written without this member. The
    /// caller ensures that the member's log, if there is one, is empty. If the device was a member
    /// before, the caller also ensures that no log write to the device is under way.
    ///
    /// # Errors
    /// If the slot does not exist or has a member, or the device is too small.
    pub fn attach(&self, slot: usize, member: Member) -> Result<(), ArrayError> {
        self.check_member(slot, &member)?;
        let _state = self.state();
        self.members.check_vacant(slot)?;
        self.install(slot, member, 0)
    }

    /// Works like [`Array::attach`], and calls `record` to write the member's metadata: the slot
    /// changes in the metadata and in this array under one lock. `record` also returns the member's
    /// standing: either no row is valid, or all rows are.
    pub(crate) fn attach_recording(
        &self,
        slot: usize,
        member: Member,
        record: impl FnOnce() -> Result<(Slots, Recovery), AssignError>,
    ) -> Result<Recovery, AssembleError> {
        self.check_member(slot, &member)?;
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        self.members.check_vacant(slot)?;
        self.install_recording(slot, member, record)
    }

    /// Calls `record` to record that the member has `slot`, then puts the member into the slot with
    /// the standing that `record` returns.
    ///
    /// # Locking
    /// The caller holds the lock of the array's state.
    fn install_recording(
        &self,
        slot: usize,
        member: Member,
        record: impl FnOnce() -> Result<(Slots, Recovery), AssignError>,
    ) -> Result<Recovery, AssembleError> {
        // The slot is checked first, because once the member has been recorded, putting it into the
        // slot must not fail.
        self.members.check_place(slot)?;
        let (lost, recovery) = record().map_err(|error| self.not_assigned(error))?;
        let rows = match recovery {
            Recovery::InSync => u64::MAX,
            Recovery::Below(_) => 0,
        };
        self.install(slot, member, rows)?;
        self.assigned(slot, lost).map(|()| recovery)
    }

    /// Rebuilds the member in `slot`, from its last recorded progress.
    ///
    /// # Errors
    /// If a member fails, if the rebuilt member is removed, if progress cannot be recorded, or if a
    /// chunk of data would have to be computed from parity that may be wrong.
    pub fn rebuild(
        &self,
        slot: usize,
        which: Rebuild,
        progress: Callback<'_>,
    ) -> Result<Ended, DeviceError> {
        let (member, mut row) = match self.members.present_standing(slot) {
            Some((_, Standing::InSync)) => return Ok(Ended::Done),
            Some((member, Standing::Rebuilding { row })) => (member.id, row),
            Some((_, Standing::Missing)) | None => return Err(gone(slot)),
        };
        let mut recorded = row;
        while row < self.shape.rows() {
            self.rebuild_row(member, row, which)?;
            row += 1;
            let stop = progress(self.progress(row)).is_break();
            let far = (row - recorded) * self.shape.chunk() >= CHECKPOINT;
            if row < self.shape.rows() && (stop || far) {
                self.record_recovered(member, Recovered::SoFar)?;
                recorded = row;
            }
            if self.members.standing(slot) == Standing::InSync {
                // Another rebuild of the member has been faster.
                break;
            }
            if stop && row < self.shape.rows() {
                return Ok(Ended::Stopped);
            }
        }
        self.record_recovered(member, Recovered::Wholly)?;
        Ok(Ended::Done)
    }

    fn rebuild_row(&self, id: MemberId, row: u64, which: Rebuild) -> Result<(), DeviceError> {
        let _hold = self.lock_row(row);
        let _unit = self.budget.take(row, &self.counters);
        // Where another rebuild has come first, the array relies on the row: it must not be
        // computed again, from blocks that may be unreadable by now.
        if self.members.of_row(id.slot, row).is_some_and(|member| member.id == id) {
            return Ok(());
        }
        if which == Rebuild::Whole || self.row_is_intended(row) {
            let place = Stretch { row, from: 0 };
            let mut bytes = self.scratch.take(self.shape.chunk());
            let unknown = match self.rebuild_into(id.slot, place, &mut bytes) {
                Err(ReadError::Final(error)) => {
                    self.rebuild_blocks(id.slot, row, &mut bytes, error)?
                }
                done => done.map(|()| Vec::new()).map_err(|e| self.give_up(e, id.slot))?,
            };
            let member = self.members.still(id).ok_or_else(|| gone(id.slot))?;
            self.counters.add(Count::DataWrite, 1);
            let at = member.data_offset + row * self.shape.chunk();
            if let Err(error) = member.device.write_at(at, &bytes) {
                // On a host without space the rebuild stops, and goes on at the next start.
                if !is_full(&error) {
                    self.lose(Lost::new(id, error.clone()))?;
                }
                return Err(error);
            }
            for (from, error) in unknown {
                self.mark_bad([member], row, from, error)?;
            }
        }
        // The standing is published before the row is released, so that the next writer writes to
        // this member too.
        if self.members.advance(id, row + 1) { Ok(()) } else { Err(gone(id.slot)) }
    }

    /// Computes a chunk block by block. Returns the offset of each block that cannot be computed,
    /// since a block of another member cannot be read, with the error.
    fn rebuild_blocks(
        &self,
        slot: usize,
        row: u64,
        bytes: &mut [u8],
        error: DeviceError,
    ) -> Result<Vec<(u64, DeviceError)>, DeviceError> {
        let others = self.members.missing(row) - Slots::one(slot);
        if !others.is_empty() || self.unsynced.contains(row, 0, self.shape.chunk()) {
            return Err(error);
        }
        let mut unknown = Vec::new();
        for (from, block) in (0..).step_by(BLOCK as usize).zip(bytes.chunks_mut(BLOCK as usize)) {
            match self.rebuild_into(slot, Stretch { row, from }, block) {
                Ok(()) => {}
                Err(ReadError::Final(error)) => {
                    block.fill(0);
                    unknown.push((from, error));
                }
                Err(error) => return Err(self.give_up(error, slot)),
            }
        }
        Ok(unknown)
    }

    /// Records that a block of a member (and of its shadow) is bad, since it cannot be computed.
    /// Its other members then cannot be computed from it either.
    ///
    /// # Errors
    /// `error`, which is the reason, if a bad-block log has no room.
    pub(crate) fn mark_bad<'m>(
        &self,
        members: impl IntoIterator<Item = Present<'m>>,
        row: u64,
        from: u64,
        error: DeviceError,
    ) -> Result<(), DeviceError> {
        let at = row * self.shape.chunk() + from;
        let mut marked = false;
        for member in members {
            if !member.mark_bad(at, BLOCK) {
                return Err(error);
            }
            marked = true;
        }
        if marked {
            self.counters.add(Count::Unreadable, 1);
        }
        Ok(())
    }

    fn record_recovered(&self, id: MemberId, so_far: Recovered) -> Result<(), DeviceError> {
        // Another rebuild of the member may be ahead of this one. The flush covers all rows that
        // are valid here.
        let valid = match self.members.standing(id.slot) {
            Standing::Rebuilding { row } => row,
            Standing::InSync | Standing::Missing => 0,
        };
        self.flush_members()?;
        // While the lock is held, no other member gets the slot, either in the metadata or in this
        // array.
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        if self.members.still(id).is_none() {
            return Err(gone(id.slot));
        }
        if self.members.standing(id.slot) == Standing::InSync {
            return Ok(());
        }
        let lost = match so_far {
            Recovered::SoFar => self.record.set_recovered(id.slot, valid * self.shape.chunk()),
            Recovered::Wholly => {
                let lost = self.record.set_recovered(id.slot, u64::MAX);
                if lost.is_ok() {
                    self.members.advance(id, u64::MAX);
                }
                lost
            }
        };
        let lost = self.noted(lost)?;
        if lost.contains(id.slot) { Err(gone(id.slot)) } else { Ok(()) }
    }

    /// Recomputes the parity of all rows whose parity may be wrong after a crash.
    ///
    /// # Errors
    /// When a member fails, or progress cannot be recorded. Also at the first row that lacks a
    /// member with data: the missing data can be computed only from the parity that the row has
    /// now.
    pub fn resync(&self, progress: Callback<'_>) -> Result<Ended, DeviceError> {
        let mut at = 0;
        let mut recorded = 0;
        while let Some(row) = self.unsynced.next_from(at) {
            let held = (self.lock_row(row), self.budget.take(row, &self.counters));
            self.resync_row(row)?;
            at = row + 1;
            self.unsynced.advance(at);
            drop(held);
            let stop = progress(self.progress(at)).is_break();
            if stop || (at - recorded) * self.shape.chunk() >= CHECKPOINT {
                self.record_resynced(at * self.shape.chunk())?;
                recorded = at;
            }
            if stop && self.unsynced.next_from(at).is_some() {
                return Ok(Ended::Stopped);
            }
        }
        self.record_resynced(u64::MAX)?;
        self.unsynced.advance(self.shape.rows());
        Ok(Ended::Done)
    }

    /// # Locking
    /// The same as for [`Array::check_row`].
    fn resync_row(&self, row: u64) -> Result<(), DeviceError> {
        loop {
            if let Some(checked) = self.check_row(row, Scrub::Repair)? {
                return self.mark_parity(row, checked.unreadable);
            }
            let missing = self.members.missing(row);
            if !(missing - Slots::one(self.shape.parity_slot(row))).is_empty() {
                return Err(self.unknown(row, Operation::Read));
            }
            if !missing.is_empty() {
                // The row has no parity, because the member for it is missing. The rebuild of that
                // member computes the parity from the data.
                return Ok(());
            }
            // A member was replaced during the check, so the check is made again. While the row is
            // held, no member can be rebuilt or copied, so this loop terminates.
        }
    }

    /// Records as bad the blocks of parity that a resync cannot compute, so that nothing is
    /// computed from them.
    fn mark_parity(&self, row: u64, blocks: Vec<(u64, DeviceError)>) -> Result<(), DeviceError> {
        let slot = self.shape.parity_slot(row);
        for (from, error) in blocks {
            let shadow = self.members.shadow_of_row(slot, row);
            let members = shadow.into_iter().chain(self.members.of_row(slot, row));
            self.mark_bad(members, row, from, error)?;
        }
        Ok(())
    }

    fn record_resynced(&self, bytes: u64) -> Result<(), DeviceError> {
        self.flush_members()?;
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        self.noted(self.record.set_resynced(bytes)).map(drop)
    }

    /// Compares all parity with the data.
    ///
    /// # Errors
    /// When a member fails.
    pub fn scrub(
        &self,
        what: Scrub,
        progress: Callback<'_>,
    ) -> Result<(ScrubReport, Ended), DeviceError> {
        self.scrub_rows(what, 0..self.shape.rows(), progress)
    }

    /// Works like [`Array::scrub`], for some rows.
    ///
    /// # Errors
    /// When a member fails.
    pub fn scrub_rows(
        &self,
        what: Scrub,
        rows: Range<u64>,
        progress: Callback<'_>,
    ) -> Result<(ScrubReport, Ended), DeviceError> {
        let mut report = ScrubReport::default();
        for row in rows.start..rows.end.min(self.shape.rows()) {
            {
                let _hold = self.lock_row(row);
                let _unit = self.budget.take(row, &self.counters);
                report.rows += 1;
                match self.check_row(row, what)? {
                    Some(Checked { wrong, unreadable }) => {
                        report.wrong_blocks += wrong;
                        report.wrong_rows += u64::from(wrong > 0);
                        report.unreadable_blocks += unreadable.len() as u64;
                    }
                    None => report.skipped += 1,
                }
            }
            if progress(self.progress(row + 1)).is_break() {
                return Ok((report, Ended::Stopped));
            }
        }
        if what == Scrub::Repair && report.wrong_rows > 0 {
            self.flush_members()?;
        }
        Ok((report, Ended::Done))
    }

    /// Computes a row's parity from its data, and returns the number of blocks with wrong parity.
    /// With [`Scrub::Repair`], writes the right parity. Returns `None` if a member of the row is
    /// missing.
    ///
    /// # Locking
    /// The caller holds the whole row exclusively, and a unit of the budget.
    fn check_row(&self, row: u64, what: Scrub) -> Result<Option<Checked>, DeviceError> {
        let place = Stretch { row, from: 0 };
        match self.compare(place, self.shape.chunk(), what) {
            Ok(wrong) => Ok(Some(Checked { wrong, ..Checked::default() })),
            Err(ReadError::Final(error)) if self.is_stopped() => Err(error),
            Err(ReadError::Final(_)) => self.check_blocks(row, what),
            Err(error) => self.not_checked(row, error),
        }
    }

    /// Checks a row block by block, since a member cannot read all of it.
    fn check_blocks(&self, row: u64, what: Scrub) -> Result<Option<Checked>, DeviceError> {
        let mut checked = Checked::default();
        for from in (0..self.shape.chunk()).step_by(BLOCK as usize) {
            match self.compare(Stretch { row, from }, BLOCK, what) {
                Ok(wrong) => checked.wrong += wrong,
                Err(ReadError::Final(error)) if self.is_stopped() => return Err(error),
                Err(ReadError::Final(error)) => checked.unreadable.push((from, error)),
                Err(error) => return self.not_checked(row, error),
            }
        }
        Ok(Some(checked))
    }

    fn not_checked(&self, row: u64, error: ReadError) -> Result<Option<Checked>, DeviceError> {
        match error {
            ReadError::Gone => Ok(None),
            error => Err(self.give_up(error, self.shape.parity_slot(row))),
        }
    }

    /// # Locking
    /// The same as for [`Array::check_row`].
    fn compare(&self, place: Stretch, len: u64, what: Scrub) -> Result<u64, ReadError> {
        let Stretch { row, from } = place;
        let parity = self.shape.parity_slot(row);
        if !self.members.missing(row).is_empty() {
            return Err(ReadError::Gone);
        }
        let mut right = self.scratch.take(len);
        self.correcting(|| self.rebuild_into(parity, place, &mut right))?;
        let member = self.members.of_row(parity, row).ok_or(ReadError::Gone)?;
        let mut there = self.scratch.take(len);
        self.correcting(|| self.read_member(member, place, Count::ParityRead, &mut there))?;
        let blocks = right.chunks(BLOCK as usize).zip(there.chunks(BLOCK as usize));
        let wrong = blocks.filter(|(a, b)| a != b).count() as u64;
        if wrong > 0 && what == Scrub::Repair {
            let shadow = self.members.shadow_of_row(parity, row);
            let member = self.members.of_row(parity, row).ok_or(ReadError::Gone)?;
            let shadow = shadow.filter(|shadow| shadow.id != member.id);
            for member in shadow.into_iter().chain([member]) {
                self.counters.add(Count::ParityWrite, 1);
                let at = member.data_offset + row * self.shape.chunk() + from;
                if let Err(error) = member.device.write_at(at, &right) {
                    self.lose(Lost::new(member.id, error)).map_err(ReadError::Final)?;
                }
            }
        }
        Ok(wrong)
    }

    /// Runs `read`, and runs it again after a correction.
    ///
    /// # Locking
    /// The same as for [`Array::check_row`].
    fn correcting(&self, mut read: impl FnMut() -> Result<(), ReadError>) -> Result<(), ReadError> {
        loop {
            match read() {
                Err(ReadError::Lost(lost)) if self.correct(&lost).map_err(ReadError::Final)? => {}
                done => return done,
            }
        }
    }

    pub(crate) fn lock_row(&self, row: u64) -> RowHold<'_> {
        let span = Span { row, from: 0, to: self.shape.chunk(), mode: Mode::Exclusive };
        self.rows.lock(span)
    }

    /// Handles a failed read, after which the work stops. If the array can work without the member
    /// that could not be read, records that member as failed. `slot` is the slot of the member for
    /// which the work was done.
    fn give_up(&self, error: ReadError, slot: usize) -> DeviceError {
        match error {
            ReadError::Final(error) => error,
            ReadError::Gone => gone(slot),
            ReadError::Lost(lost) => {
                let error = lost.error.clone();
                self.lose(lost).err().unwrap_or(error)
            }
        }
    }

    pub(crate) fn progress(&self, row: u64) -> Progress {
        Progress { done: row * self.shape.chunk(), total: self.shape.member_len() }
    }

    /// Returns the slots whose members are missing or not rebuilt yet.
    pub fn degraded(&self) -> Slots {
        self.members.not_in_sync()
    }
}
