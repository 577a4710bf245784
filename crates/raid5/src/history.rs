//! Decides whether a former member can be caught up from the write-intent bitmap.
//!
//! The bits say which rows the array has written since the member left. They say nothing about a
//! member that was written in another history of the array, for example if the other members were
//! set back to a snapshot. The event counts and the bits of such a member can give it away, but
//! need not. So its contents are compared too, in a sample of the rows whose bits are clear.

use crate::array::Array;
use crate::candidate::Candidate;
use crate::lost::Stretch;
use crate::metadata::Metadata;
use crate::start::read_intents;
use lanefs_device::Device;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// The number of rows in the sample, besides the first and the last one.
const SAMPLE: u64 = 256;
/// Bytes of a chunk that are compared.
const COMPARED: u64 = 512 << 10;

impl Metadata {
    /// Returns whether the superblock and the bitmap of a former member allow that it missed only
    /// the rows whose bits are set now.
    pub(crate) fn may_cover(&self, own: &Candidate) -> bool {
        let Some((cleared, bits)) = self.bits() else { return false };
        let Ok(Some(intents)) = read_intents(own) else { return false };
        let (events, recorded) = (own.superblock.events(), self.recorded());
        let is_of_this_history = events < recorded.events()
            || events == recorded.events() && own.superblock.written() == recorded.written();
        // While a member is absent, no bit is cleared. So its bits are still set.
        let has_more = intents.bits.iter().zip(&bits).any(|(own, now)| own & !now != 0);
        is_of_this_history
            && events >= cleared
            && intents.header.events_cleared() <= cleared
            && !has_more
    }
}

impl Array {
    /// Returns whether a device has the right contents for `slot` in a sample of the rows whose
    /// bits are clear: the first and the last of them, and [`SAMPLE`] others.
    pub(crate) fn fits_clear_rows(&self, slot: usize, own: &Candidate) -> bool {
        let data = own.superblock.data().offset;
        self.sample().into_iter().all(|row| self.fits_row(slot, row, &*own.device, data))
    }

    /// Returns whether the device has the right contents in this row, or the row's bits are set. A
    /// row that cannot be compared does not fit.
    fn fits_row(&self, slot: usize, row: u64, device: &dyn Device, data: u64) -> bool {
        let _hold = self.lock_row(row);
        let _unit = self.budget.take(row, &self.counters);
        if self.row_is_intended(row) {
            return true;
        }
        let len = self.shape.chunk().min(COMPARED);
        let (mut right, mut there) = (self.scratch.take(len), self.scratch.take(len));
        self.rebuild_into(slot, Stretch { row, from: 0 }, &mut right).is_ok()
            && device.read_at(data + row * self.shape.chunk(), &mut there).is_ok()
            && right[..] == there[..]
    }

    /// Returns rows whose bits are clear: the first, the last, and one in each of [`SAMPLE`] parts
    /// of the array.
    fn sample(&self) -> Vec<u64> {
        let (rows, random) = (self.shape.rows(), RandomState::new());
        let count = rows.min(SAMPLE);
        let one = |part: u64| {
            let (from, to) = (rows * part / count, rows * (part + 1) / count);
            let middle = from + random.hash_one(part) % (to - from);
            self.clear_row(middle, to).or_else(|| self.clear_row(from, middle))
        };
        let ends = [self.clear_row(0, rows), self.last_clear_row(rows)];
        ends.into_iter().chain((0..count).map(one)).flatten().collect()
    }

    /// Returns the first row at or after `from`, and below `to`, whose bits are clear.
    fn clear_row(&self, from: u64, to: u64) -> Option<u64> {
        let mut row = from;
        while row < to && self.row_is_intended(row) {
            // The next row that has another bit. There may be many more rows than bits.
            row = (row / self.rows_per_bit() + 1) * self.rows_per_bit();
        }
        (row < to).then_some(row)
    }

    /// Returns the last row below `rows` whose bits are clear.
    fn last_clear_row(&self, rows: u64) -> Option<u64> {
        let mut end = rows;
        while let Some(row) = end.checked_sub(1) {
            if !self.row_is_intended(row) {
                return Some(row);
            }
            end = row / self.rows_per_bit() * self.rows_per_bit();
        }
        None
    }

    fn rows_per_bit(&self) -> u64 {
        let chunk = self.intents.as_ref().map_or(0, |intents| intents.chunk);
        (chunk / self.shape.chunk()).max(1)
    }
}
