//! Flushes an array, and records what it may rely on: one flush of all members serves all threads
//! that wait for a flush. The array is marked active before a write, and clean after a rest. Bits
//! of the write-intent bitmap are set before writes, and cleared long after.

use crate::array::unsynced::{Bit, CLEAR, IDLE, Intents, SET, bits_of, exchange};
use crate::array::{Array, Rest};
use crate::base::Count;
use crate::base::layout::Slots;
use crate::members::flushing::FlushTurn;
use crate::members::{Lost, Present};
use crate::rows::Span;
use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a thread that waits for a member's flush checks whether the member was removed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Array {
    /// Flushes. Then records that the array is clean, unless a write is under way or parity may be
    /// wrong.
    ///
    /// # Errors
    /// Errors of the flush, and of writing the metadata.
    pub fn stop(&self) -> Result<(), DeviceError> {
        self.flush()?;
        // The first call marks bits as idle, and the second call clears them.
        self.clear_idle_bits()?;
        self.clear_idle_bits()?;
        match self.activity.rest() {
            Rest::Off => Ok(()),
            Rest::Began | Rest::Lasted => self.clean(),
        }
    }

    /// Clears the bitmap bits of regions that were not written since the last call. If there was no
    /// write at all since the last call and all parity is right, records that the array is clean.
    /// The owner of the array calls this at intervals.
    ///
    /// # Errors
    /// Errors of the flush, and of writing the metadata.
    pub fn settle(&self) -> Result<(), DeviceError> {
        self.clear_idle_bits()?;
        match self.activity.rest() {
            Rest::Off | Rest::Began => Ok(()),
            Rest::Lasted => self.clean(),
        }
    }

    fn clean(&self) -> Result<(), DeviceError> {
        if self.is_read_only() || self.is_stopped() || !self.budget.none_taken() {
            return Ok(());
        }
        self.flush()?;
        if self.unsynced.any() {
            return Ok(());
        }
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        if !self.activity.clean() {
            return Ok(());
        }
        let lost = self.record.mark_clean().inspect_err(|_| self.activity.unclean());
        self.noted(lost).map(drop)
    }

    /// Records the array as active, so that after a crash its parity is restored. Called before a
    /// range of a row is written.
    pub(crate) fn begin(&self) -> Result<(), DeviceError> {
        if self.activity.is_on() {
            return Ok(());
        }
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        if self.activity.is_on() {
            return Ok(());
        }
        let lost = self.record.mark_active().inspect_err(|e| self.stop_writes(&e.error));
        self.noted(lost)?;
        self.activity.turn_on();
        Ok(())
    }

    /// Flushes all members, for this caller and all threads that called meanwhile. Fails if writes
    /// are stopped.
    pub(crate) fn flush_members(&self) -> Result<(), DeviceError> {
        let (turn, waited) = self.gate.enter();
        self.counters.add(Count::FlushWait, u64::from(waited));
        let number = match turn {
            FlushTurn::Covered => return Ok(()),
            FlushTurn::Failed => {
                self.refuse_if_stopped(0, 0)?;
                let error = std::io::Error::other("a flush shared with others failed");
                return Err(DeviceError::new(Operation::Flush, 0, 0, error));
            }
            FlushTurn::Run(number) => number,
        };
        // Once writes are stopped, a member can be removed without a record of its failure. Such a
        // member was possibly not flushed, so the flush fails if writes are stopped.
        let flushed = self.unsynced.unflushed.flush(|| self.flush_each());
        let stored = flushed.and_then(|()| self.store_bad_blocks());
        let result = stored.and_then(|()| self.refuse_if_stopped(0, 0));
        if result.is_ok() {
            self.logs.iter().for_each(|log| log.retire(number));
        }
        self.gate.leave(number, &result);
        result
    }

    /// Records which blocks of the members became bad or good.
    pub(crate) fn store_bad_blocks(&self) -> Result<(), DeviceError> {
        let is_changed = |m: Present<'_>| m.bad_blocks.as_ref().is_some_and(|b| b.is_changed());
        if !self.members.to_flush().any(is_changed) || self.is_read_only() {
            return Ok(());
        }
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        self.noted(self.record.store_bad_blocks()).map(drop)
    }

    /// Flushes each member: with a time limit all at once, on their own threads.
    fn flush_each(&self) -> Result<(), DeviceError> {
        let ask = |member: &Present<'_>| {
            if self.flush_limit.is_some() {
                member.flusher().ask();
            }
        };
        let members: Vec<Present<'_>> = self.members.to_flush().inspect(ask).collect();
        let begun = Instant::now();
        for member in members {
            self.counters.add(Count::MemberFlush, 1);
            let flushed = match self.flush_limit {
                Some(limit) => self.await_flush(member, begun, limit),
                None => member.device.flush(),
            };
            if let Err(error) = flushed {
                // Data in the device's cache is possibly lost, so the device cannot stay a member.
                self.lose(Lost::new(member.id, error))?;
            }
        }
        Ok(())
    }

    /// Waits for a member's flush, but no longer than the time limit allows. If the array cannot
    /// work without the member, there is no limit. The wait ends early if the member is removed.
    fn await_flush(
        &self,
        member: Present<'_>,
        begun: Instant,
        limit: Duration,
    ) -> Result<(), DeviceError> {
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            // A thread that removes a member does not know which threads wait here, so the waiting
            // threads check at intervals.
            let most = if left.is_zero() { LOOK_AGAIN } else { left.min(LOOK_AGAIN) };
            if let Some(result) = member.flusher().wait(most) {
                return result;
            }
            if !self.members.is_in_use(member.id) {
                return Ok(());
            }
            let others = self.members.not_in_sync() - Slots::one(member.id.slot);
            // `still` returns `None` for a shadow, without which the array can always work.
            let needed = !others.is_empty() && self.members.still(member.id).is_some();
            if !needed && begun.elapsed() >= limit {
                let late = format!("no answer to a flush in {limit:?}");
                let error = std::io::Error::new(std::io::ErrorKind::TimedOut, late);
                return Err(DeviceError::new(Operation::Flush, 0, 0, error));
            }
        }
    }
}

impl Array {
    /// Sets the bits of a range of a row, before the range is written.
    ///
    /// # Locking
    /// The caller holds the range exclusively.
    pub(crate) fn intend(&self, span: &Span) -> Result<(), DeviceError> {
        let Some(intents) = &self.intents else { return Ok(()) };
        let base = span.row * self.shape.chunk();
        let (first, last) =
            ((base + span.from) / intents.chunk, (base + span.to - 1) / intents.chunk);
        let missing: Vec<u64> = (first..=last).filter(|bit| !intents.is_set(*bit)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        intents.wanted.lock().extend(&missing);
        let _state = self.state();
        self.refuse_if_stopped(span.row * self.shape.row_len(), 0)?;
        let mut wanted = std::mem::take(&mut *intents.wanted.lock());
        wanted.retain(|bit| !intents.is_set(*bit));
        if !wanted.is_empty() {
            self.write_bits(intents, &wanted, Bit::Set).inspect_err(|e| self.stop_writes(e))?;
            wanted.iter().for_each(|bit| intents.state(*bit).store(SET, Ordering::Release));
        }
        // Another thread may have taken this thread's bits from the list of wanted bits. If it
        // failed to write them, it has stopped writes.
        self.refuse_if_stopped(span.row * self.shape.row_len(), 0)
    }

    /// # Locking
    /// The caller holds the lock of the array's state.
    fn write_bits(&self, intents: &Intents, bits: &[u64], to: Bit) -> Result<(), DeviceError> {
        for (at, bytes) in intents.change(bits, to) {
            self.counters.add(Count::BitWrite, 1);
            self.noted(self.record.write_bits(at, &bytes))?;
        }
        Ok(())
    }

    /// Clears the bits of the regions that were not written since the last call.
    pub(crate) fn clear_idle_bits(&self) -> Result<(), DeviceError> {
        let Some(intents) = &self.intents else { return Ok(()) };
        if self.unsynced.any() || !self.members.not_in_sync().is_empty() {
            return Ok(());
        }
        let idle = intents.age();
        if idle.is_empty() {
            return Ok(());
        }
        for bit in &idle {
            let rows = (bit * intents.chunk) / self.shape.chunk()
                ..((bit + 1) * intents.chunk).div_ceil(self.shape.chunk()).min(self.shape.rows());
            rows.for_each(|row| self.rows.pass_through(row));
        }
        self.flush_members()?;
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        if !self.members.not_in_sync().is_empty() {
            return Ok(());
        }
        let clear: Vec<u64> =
            idle.into_iter().filter(|bit| exchange(intents.state(*bit), IDLE, CLEAR)).collect();
        self.write_bits(intents, &clear, Bit::Clear)
    }

    /// Returns the bits as written on the members; `None` without a bitmap.
    pub fn bitmap(&self) -> Option<Vec<u8>> {
        self.intents.as_ref().map(|intents| intents.bytes.lock().clone())
    }

    /// Returns whether the bitmap has a bit set for `row`; true without a bitmap.
    pub(crate) fn row_is_intended(&self, row: u64) -> bool {
        let Some(intents) = &self.intents else { return true };
        let (first, last) = bits_of(&self.shape, intents.chunk, row, 1);
        (first..=last).any(|bit| intents.state(bit).load(Ordering::Acquire) != CLEAR)
    }
}
