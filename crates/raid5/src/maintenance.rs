//! Long work on line: rebuilding a member, resync after a crash, scrub.
//!
//! Each goes row by row, holding the whole row exclusively, and reads and writes go on in between.
//! How far it has come is recorded now and then, after a flush, so that it goes on from there after
//! a stop or a crash.

use crate::array::{Array, Lost, check_size, recovered_rows};
use crate::counters::Count;
use crate::read::{ReadError, Stretch};
use crate::rows::{Mode, RowHold, Span};
use crate::standing::{Member, Standing};
use crate::{ArrayError, BLOCK, Slots};
use lanefs_device::{Device, DeviceError, Operation};
use std::ops::ControlFlow;

/// Bytes of a member's share between two records of how far the work has come.
const CHECKPOINT: u64 = 64 << 20;

/// How far long work has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the members' shares that are done.
    pub done: u64,
    /// Bytes of the members' shares in all.
    pub total: u64,
}

/// How long work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It is done.
    Done,
    /// The callback wanted it to stop; how far it came is recorded.
    Stopped,
}

/// Which rows a rebuild writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuild {
    /// All: the member is new.
    Whole,
    /// Those whose bits are set in the write-intent bitmap: the member was away, and the bits tell
    /// what it missed.
    Intended,
}

/// What a scrub does with parity that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scrub {
    /// Counts it.
    Check,
    /// Counts it, and writes what the data says.
    Repair,
}

/// What a scrub found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubReport {
    /// Rows looked at.
    pub rows: u64,
    /// Rows that could not be looked at, since a member of them is missing.
    pub skipped: u64,
    /// Blocks of 4 KiB whose parity was wrong.
    pub wrong_blocks: u64,
    /// Rows with such blocks.
    pub wrong_rows: u64,
}

type Callback<'c> = &'c mut dyn FnMut(Progress) -> ControlFlow<()>;

impl Array {
    /// Puts a member into an empty slot; it has its share up to `member.recovered`. Its metadata
    /// says so already.
    ///
    /// # Errors
    /// If there is no such slot, it is taken, or the device is too small.
    pub fn attach(&self, slot: usize, member: Member) -> Result<(), ArrayError> {
        check_size(&self.shape, slot, &member)?;
        let _state = self.state();
        let rows = recovered_rows(&self.shape, member.recovered);
        let area = member.log;
        self.members.put(slot, member, rows)?;
        self.replace_log(slot, area);
        Ok(())
    }

    /// Rebuilds the member in `slot` from where it stands.
    ///
    /// # Errors
    /// When another member fails, or the one that is rebuilt; or what the record says.
    pub fn rebuild(
        &self,
        slot: usize,
        which: Rebuild,
        progress: Callback<'_>,
    ) -> Result<Ended, DeviceError> {
        let mut row = match self.members.standing(slot) {
            Standing::InSync => return Ok(Ended::Done),
            Standing::Rebuilding { row } => row,
            Standing::Missing => {
                return Err(ArrayError::NoSuchSlot { slot }.of(Operation::Write, 0, 0));
            }
        };
        let mut recorded = row;
        while row < self.shape.rows() {
            self.rebuild_row(slot, row, which)?;
            row += 1;
            let stop = progress(self.progress(row)).is_break();
            let far = (row - recorded) * self.shape.chunk() >= CHECKPOINT;
            if row < self.shape.rows() && (stop || far) {
                self.record_recovered(slot, row * self.shape.chunk())?;
                recorded = row;
            }
            if stop && row < self.shape.rows() {
                return Ok(Ended::Stopped);
            }
        }
        self.record_recovered(slot, u64::MAX)?;
        self.members.advance(slot, u64::MAX);
        Ok(Ended::Done)
    }

    fn rebuild_row(&self, slot: usize, row: u64, which: Rebuild) -> Result<(), DeviceError> {
        let _hold = self.lock_row(row);
        let _unit = self.budget.take(row, &self.counters);
        if which == Rebuild::Intended && !self.row_is_intended(row) {
            self.members.advance(slot, row + 1);
            return Ok(());
        }
        let place = Stretch { row, from: 0 };
        let mut bytes = self.scratch.take(self.shape.chunk());
        self.without_reserve(self.rebuild_into(slot, place, &mut bytes))?;
        let gone = || ArrayError::NoSuchSlot { slot }.of(Operation::Write, 0, 0);
        let member = self.members.present(slot).ok_or_else(gone)?;
        self.counters.add(Count::DataWrite, 1);
        let at = member.data_offset + row * self.shape.chunk();
        if let Err(error) = member.device.write_at(at, &bytes) {
            self.lose(Lost::new(slot, error.clone()))?;
            return Err(error);
        }
        // Published before the row is let go: the next writer writes this member's share too.
        self.members.advance(slot, row + 1);
        Ok(())
    }

    fn record_recovered(&self, slot: usize, bytes: u64) -> Result<(), DeviceError> {
        self.flush_members()?;
        let _state = self.state();
        if self.members.present(slot).is_none() {
            return Err(ArrayError::NoSuchSlot { slot }.of(Operation::Write, 0, 0));
        }
        let lost = self.record.set_recovered(slot, bytes)?;
        self.note(lost)
    }

    /// Makes the parity right of all rows that a crash left in doubt.
    ///
    /// # Errors
    /// When a member fails, or what the record says.
    pub fn resync(&self, progress: Callback<'_>) -> Result<Ended, DeviceError> {
        let mut at = 0;
        let mut recorded = 0;
        while let Some(row) = self.unsynced.next_from(at) {
            let held = (self.lock_row(row), self.budget.take(row, &self.counters));
            // A row that misses a member has no parity to find, or needs the one it has.
            if self.members.missing(row).is_empty() {
                self.judge_row(row, Scrub::Repair)?;
            }
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

    fn record_resynced(&self, bytes: u64) -> Result<(), DeviceError> {
        self.flush_members()?;
        let _state = self.state();
        let lost = self.record.set_resynced(bytes)?;
        self.note(lost)
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
        let mut report = ScrubReport::default();
        for row in 0..self.shape.rows() {
            {
                let _hold = self.lock_row(row);
                let _unit = self.budget.take(row, &self.counters);
                report.rows += 1;
                if self.members.missing(row).is_empty() {
                    let wrong = self.judge_row(row, what)?;
                    report.wrong_blocks += wrong;
                    report.wrong_rows += u64::from(wrong > 0);
                } else {
                    report.skipped += 1;
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

    /// Finds a row's parity from its data, and counts the blocks in which it was wrong.
    ///
    /// # Locking
    /// The caller holds the whole row exclusively, and a unit of the budget.
    fn judge_row(&self, row: u64, what: Scrub) -> Result<u64, DeviceError> {
        let parity = self.shape.parity_slot(row);
        let place = Stretch { row, from: 0 };
        let mut right = self.scratch.take(self.shape.chunk());
        let find = || self.rebuild_into(parity, place, &mut right);
        self.without_reserve(self.correcting(find))?;
        let Some(member) = self.members.of_row(parity, row) else { return Ok(0) };
        let mut there = self.scratch.take(self.shape.chunk());
        let read = || self.read_member(parity, member, place, Count::ParityRead, &mut there);
        self.without_reserve(self.correcting(read))?;
        let blocks = right.chunks(BLOCK as usize).zip(there.chunks(BLOCK as usize));
        let wrong = blocks.filter(|(a, b)| a != b).count() as u64;
        if wrong > 0 && what == Scrub::Repair {
            self.counters.add(Count::ParityWrite, 1);
            let at = member.data_offset + row * self.shape.chunk();
            if let Err(error) = member.device.write_at(at, &right) {
                self.lose(Lost::new(parity, error))?;
            }
        }
        Ok(wrong)
    }

    /// Reads again what could be corrected.
    ///
    /// # Locking
    /// As [`Array::judge_row`].
    fn correcting(&self, mut read: impl FnMut() -> Result<(), ReadError>) -> Result<(), ReadError> {
        loop {
            match read() {
                Err(ReadError::Lost(lost)) if self.correct(&lost).map_err(ReadError::Final)? => {}
                done => return done,
            }
        }
    }

    fn lock_row(&self, row: u64) -> RowHold<'_> {
        let span = Span { row, from: 0, to: self.shape.chunk(), mode: Mode::Exclusive };
        self.rows.lock(span)
    }

    /// Here a failed read ends the work: the member is recorded as failed if the array can do
    /// without it.
    fn without_reserve(&self, read: Result<(), ReadError>) -> Result<(), DeviceError> {
        match read {
            Ok(()) => Ok(()),
            Err(ReadError::Final(error)) => Err(error),
            Err(ReadError::Lost(lost)) => {
                let error = lost.error.clone();
                self.lose(lost)?;
                Err(error)
            }
        }
    }

    fn progress(&self, row: u64) -> Progress {
        Progress { done: row * self.shape.chunk(), total: self.shape.member_len() }
    }

    /// The slots whose members are missing or not rebuilt yet.
    pub fn degraded(&self) -> Slots {
        self.members.not_in_sync()
    }
}
