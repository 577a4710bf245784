//! Corrects an unreadable block, as md does: computes it from the other members and rewrites it.
//!
//! A disk loses single sectors long before it fails as a whole, and remaps a sector when it is
//! written. So one failed read does not fail the member. A member fails after a failed write, after
//! a failed read of a block that was just written, or after too many corrections.

use crate::array::Array;
use crate::counters::Count;
use crate::error::is_full;
use crate::layout::BLOCK;
use crate::lost::{Lost, ReadError, Stretch, Unread};
use crate::rows::{Mode, Span};
use crate::slots::Slots;
use lanefs_device::{Device, DeviceError};

/// Number of corrections after which a member is failed. md's limit is its number of stripes, which
/// is 256 by default.
const MOST: u32 = 256;

impl Array {
    /// Computes and rewrites a range that could not be read. Returns `false` if the range was not
    /// corrected. The caller must then fail the member, unless it was removed meanwhile.
    ///
    /// # Errors
    /// The error of the read, if the range cannot be computed: parity may be wrong in the row, or
    /// another member cannot be read either.
    ///
    /// # Locking
    /// The caller holds the blocks of the range exclusively, and a unit of the budget.
    pub(crate) fn correct(&self, lost: &Lost) -> Result<bool, DeviceError> {
        let Some(Unread { place, len }) = lost.unread else { return Ok(false) };
        if self.is_read_only() || self.is_stopped() {
            return Err(lost.error.clone());
        }
        let end = place.from + len;
        if end.div_ceil(BLOCK) - place.from / BLOCK == 1 {
            return self.correct_range(lost, place, len);
        }
        // Only blocks that cannot be read are computed. Elsewhere in the range, other members may
        // have unreadable blocks, or parity may be wrong without anybody knowing.
        let mut is_corrected = false;
        for block in place.from / BLOCK..end.div_ceil(BLOCK) {
            let place = Stretch { from: block * BLOCK, ..place };
            let Some(member) = self.members.still(lost.member) else { return Ok(false) };
            let at = member.data_offset + place.row * self.shape.chunk() + place.from;
            let is_read = member.device.read_at(at, &mut self.scratch.take(BLOCK)).is_ok();
            if is_read {
                continue;
            }
            if !self.correct_range(lost, place, BLOCK)? {
                return Ok(false);
            }
            is_corrected = true;
        }
        // A member that reads each block but not all at once is not tried for ever.
        let Some(member) = self.members.still(lost.member) else { return Ok(false) };
        Ok(is_corrected || member.count_correction() < MOST)
    }

    fn correct_range(&self, lost: &Lost, place: Stretch, len: u64) -> Result<bool, DeviceError> {
        let Lost { member, error, .. } = lost;
        let slot = member.slot;
        let in_doubt = self.unsynced.contains(place.row, place.from, place.from + len);
        if in_doubt && slot != self.shape.parity_slot(place.row) {
            return Err(error.clone());
        }
        let Some(member) = self.members.still(*member) else { return Ok(false) };
        let others = self.members.missing(place.row) - Slots::one(slot);
        if !others.is_empty() {
            return Ok(false);
        }
        let from = place.from / BLOCK * BLOCK;
        let whole = Stretch { from, ..place };
        let len = (place.from + len).next_multiple_of(BLOCK) - from;
        let mut bytes = self.scratch.take(len);
        match self.rebuild_into(slot, whole, &mut bytes) {
            Ok(()) => {}
            // Another member cannot be read either, so the range cannot be computed.
            Err(ReadError::Lost(_) | ReadError::Gone | ReadError::Final(_)) => {
                return Err(error.clone());
            }
        }
        let at = member.data_offset + place.row * self.shape.chunk() + from;
        // Only corrections count: not a block that cannot be computed, however often it is read,
        // and not one that the bad-block log names, which says nothing about the device.
        let is_named = member.bad_blocks.as_ref().is_some_and(|bad| bad.overlaps(at, len));
        if !is_named && member.count_correction() >= MOST {
            return Ok(false);
        }
        let mut again = self.scratch.take(len);
        let written = member.device.write_at(at, &bytes);
        if let Err(full) = &written
            && is_full(full)
        {
            return Err(error.clone());
        }
        let done = written.and_then(|()| member.device.read_at(at, &mut again));
        if done.is_err() || again[..] != bytes[..] {
            return Ok(false);
        }
        self.counters.add(Count::Corrected, 1);
        Ok(true)
    }

    /// Does the same as [`Array::correct`] for a reader, which holds no range and no unit.
    pub(crate) fn correct_unlocked(&self, lost: &Lost) -> Result<bool, DeviceError> {
        let Some(Unread { place, len }) = lost.unread else { return Ok(false) };
        let span = Span {
            row: place.row,
            from: place.from / BLOCK * BLOCK,
            to: (place.from + len).next_multiple_of(BLOCK),
            mode: Mode::Exclusive,
        };
        let _hold = self.rows.lock(span);
        let _unit = self.budget.take(place.row, &self.counters);
        self.correct(lost)
    }
}
