//! Flushes an array: one flush of all members serves all threads that wait for a flush.

use crate::array::Array;
use crate::counters::Count;
use crate::gate::Turn;
use crate::lost::Lost;
use crate::slots::Slots;
use crate::standing::Present;
use lanefs_device::{Device, DeviceError, Operation};
use std::time::{Duration, Instant};

/// How often a thread that waits for a member's flush checks whether the member was removed.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Array {
    /// Flushes all members, for this caller and all threads that called meanwhile. Fails if writes
    /// are stopped.
    pub(crate) fn flush_members(&self) -> Result<(), DeviceError> {
        let (turn, waited) = self.gate.enter();
        self.counters.add(Count::FlushWait, u64::from(waited));
        let number = match turn {
            Turn::Covered => return Ok(()),
            Turn::Failed => {
                self.refuse_if_stopped(0, 0)?;
                let error = std::io::Error::other("a flush shared with others failed");
                return Err(DeviceError::new(Operation::Flush, 0, 0, error));
            }
            Turn::Run(number) => number,
        };
        // Once writes are stopped, a member can be removed without a record of its failure. Such a
        // member was possibly not flushed, so the flush fails if writes are stopped.
        let flushed = self.unsynced.unflushed.flush(|| self.flush_each());
        let stored = flushed.and_then(|()| self.store_bad_blocks());
        let result = stored.and_then(|()| self.refuse_if_stopped(0, 0));
        if result.is_ok() {
            self.logs.iter().for_each(|log| log.retire(number));
        }
        self.gate.leave(number, result.is_ok());
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

    fn flush_each(&self) -> Result<(), DeviceError> {
        if let Some(limit) = self.flush_limit {
            return self.flush_at_once(limit);
        }
        for member in self.members.to_flush() {
            self.counters.add(Count::MemberFlush, 1);
            if let Err(error) = member.device.flush() {
                // Data in the device's cache is possibly lost, so the device cannot stay a member.
                self.lose(Lost::new(member.id, error))?;
            }
        }
        Ok(())
    }

    fn flush_at_once(&self, limit: Duration) -> Result<(), DeviceError> {
        let members = self.members.to_flush();
        let asked: Vec<Present<'_>> = members.inspect(|member| member.flusher().ask()).collect();
        let begun = Instant::now();
        for member in asked {
            self.counters.add(Count::MemberFlush, 1);
            if let Err(error) = self.await_flush(member, begun, limit) {
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
