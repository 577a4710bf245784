//! Sets bits of the write-intent bitmap before writes, and clears them long after the writes.

use crate::array::Array;
use crate::counters::Count;
use crate::intents::{Bit, CLEAR, IDLE, Intents, SET, exchange};
use crate::rows::Span;
use crate::unsynced::bits_of;
use lanefs_device::DeviceError;
use lanefs_lanes::sync::atomic::Ordering;

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
