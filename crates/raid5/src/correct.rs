//! A place that a member cannot read: found from the others and written anew, as md does it.
//!
//! A disk gives up a sector long before it gives up itself, and takes a spare one when the sector is
//! written. So a failed read alone is no reason to do without the member; a write that fails, or a
//! place that cannot be read right after it was written, is, and so are too many of them.

use crate::array::Array;
use crate::counters::Count;
use crate::failure::{Lost, ReadError, Stretch, Unread};
use crate::layout::BLOCK;
use crate::rows::{Mode, Span};
use crate::slots::Slots;
use lanefs_device::{Device, DeviceError};

/// Corrections of one member after which it is failed: md's number of stripes, its bound too.
const MOST: u32 = 256;

impl Array {
    /// Writes anew what could not be read. `false` if that does not help, and the member is to be
    /// failed; or if it was taken out meanwhile.
    ///
    /// # Errors
    /// The read's error, where parity is not known to be right: neither the place nor, without the
    /// member, anything else of the row could be told any more.
    ///
    /// # Locking
    /// The caller holds the place's blocks exclusively, and a unit of the budget.
    pub(crate) fn correct(&self, lost: &Lost) -> Result<bool, DeviceError> {
        let Some(Unread { place, len }) = lost.unread else { return Ok(false) };
        let Lost { member, error, .. } = lost;
        let slot = member.slot;
        if self.is_read_only() || self.is_stopped() {
            return Ok(false);
        }
        if self.unsynced.contains(place.row) && slot != self.shape.parity_slot(place.row) {
            return Err(error.clone());
        }
        let Some(member) = self.members.still(*member) else { return Ok(false) };
        let others = self.members.missing(place.row) - Slots::one(slot);
        if !others.is_empty() || member.count_correction() >= MOST {
            return Ok(false);
        }
        let from = place.from / BLOCK * BLOCK;
        let whole = Stretch { from, ..place };
        let len = (place.from + len).next_multiple_of(BLOCK) - from;
        let mut bytes = self.scratch.take(len);
        match self.rebuild_into(slot, whole, &mut bytes) {
            Ok(()) => {}
            // Two members that cannot read: it takes both to say what was there.
            Err(ReadError::Lost(_) | ReadError::Gone | ReadError::Final(_)) => {
                return Err(error.clone());
            }
        }
        let at = member.data_offset + place.row * self.shape.chunk() + from;
        let mut again = self.scratch.take(len);
        let written = member.device.write_at(at, &bytes);
        let done = written.and_then(|()| member.device.read_at(at, &mut again));
        if done.is_err() || again[..] != bytes[..] {
            return Ok(false);
        }
        self.counters.add(Count::Corrected, 1);
        Ok(true)
    }

    /// The same for a reader, which holds nothing.
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
