//! Reads data from the member that has it, or computes the data from all other members.
//!
//! A direct read takes no lock. A computed read holds its range of the row in shared mode, because
//! the XOR would be wrong if a write came between two of the member reads.
//!
//! An unreadable block is corrected, as md does: computed from the other members and rewritten. A
//! disk loses single sectors long before it fails as a whole, and remaps a sector when it is
//! written. So one failed read does not fail the member. A member fails after a failed write, after
//! a failed read of a block that was just written, or after too many corrections.

use crate::array::Array;
use crate::base::layout::{BLOCK, Slots};
use crate::base::{ArrayError, Count, is_full};
use crate::members::{Lost, Present, ReadError, Stretch, Unread};
use crate::rows::strip::{pieces, row_parts};
use crate::rows::{Mode, Span};
use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::xor_with;

impl Array {
    pub(crate) fn read_rows(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        for part in row_parts(&self.shape, offset, buf.len() as u64) {
            for piece in pieces(&self.shape, part) {
                let (from, len) = (piece.at as usize, (piece.to - piece.from) as usize);
                let place = Stretch { row: part.row, from: piece.from };
                self.read_piece(place, piece.index, &mut buf[from..from + len])?;
            }
        }
        Ok(())
    }

    fn read_piece(&self, place: Stretch, index: usize, buf: &mut [u8]) -> Result<(), DeviceError> {
        let slot = self.shape.data_slot(place.row, index);
        loop {
            let tried = match self.members.of_row(slot, place.row) {
                Some(member) => self.read_member(member, place, Count::DataRead, buf),
                None => self.read_rebuilt(slot, place, buf),
            };
            match tried {
                Ok(()) => return Ok(()),
                Err(ReadError::Final(error)) => return Err(error),
                Err(ReadError::Gone) => {}
                Err(ReadError::Lost(lost)) if self.is_read_only() || self.is_stopped() => {
                    let around = self.read_around(slot, place, buf);
                    return around.ok_or(lost.error);
                }
                Err(ReadError::Lost(lost)) if self.correct_unlocked(&lost)? => {}
                Err(ReadError::Lost(lost)) => self.lose(lost)?,
            }
        }
    }

    /// Reads from one member. If another member is missing in this row, a read error is final,
    /// since the data cannot be computed.
    pub(crate) fn read_member(
        &self,
        member: Present<'_>,
        place: Stretch,
        what: Count,
        buf: &mut [u8],
    ) -> Result<(), ReadError> {
        self.counters.add(what, 1);
        let at = member.data_offset + place.row * self.shape.chunk() + place.from;
        member.device.read_at(at, buf).map_err(|error| {
            if self.members.still(member.id).is_none() {
                return ReadError::Gone;
            }
            let others = self.members.missing(place.row) - Slots::one(member.id.slot);
            if others.is_empty() {
                let unread = Some(Unread { place, len: buf.len() as u64 });
                ReadError::Lost(Lost { member: member.id, error, unread })
            } else {
                ReadError::Final(error)
            }
        })
    }

    /// Reads block by block, and computes the blocks that cannot be read. Used where nothing can be
    /// written. Returns `None` if a block can neither be read nor computed.
    fn read_around(&self, slot: usize, place: Stretch, buf: &mut [u8]) -> Option<()> {
        let (mut from, mut rest) = (place.from, buf);
        while !rest.is_empty() {
            let len = (BLOCK - from % BLOCK).min(rest.len() as u64) as usize;
            let (block, after) = rest.split_at_mut(len);
            let at = Stretch { from, ..place };
            let member = self.members.of_row(slot, place.row);
            let read = |m| self.read_member(m, at, Count::DataRead, block).is_ok();
            if !member.is_some_and(read) {
                self.read_rebuilt(slot, at, block).ok()?;
            }
            (from, rest) = (from + len as u64, after);
        }
        Some(())
    }

    fn read_rebuilt(&self, slot: usize, place: Stretch, buf: &mut [u8]) -> Result<(), ReadError> {
        let end = place.from + buf.len() as u64;
        let span = Span {
            row: place.row,
            from: place.from / BLOCK * BLOCK,
            to: end.next_multiple_of(BLOCK),
            mode: Mode::Shared,
        };
        let hold = self.rows.lock(span);
        self.counters.add(Count::RowWait, u64::from(hold.waited));
        let _unit = self.budget.take(place.row, &self.counters);
        self.counters.add(Count::ReadRebuilt, 1);
        self.rebuild_into(slot, place, buf)
    }

    /// Computes the contents of the member in `slot` at `place`: the XOR of all other members. Data
    /// is not computed from parity that may be wrong, since the caller would get wrong data without
    /// an error.
    ///
    /// # Locking
    /// The caller holds the range of the row that it reads, and a unit of the row budget.
    pub(crate) fn rebuild_into(
        &self,
        slot: usize,
        place: Stretch,
        buf: &mut [u8],
    ) -> Result<(), ReadError> {
        let parity = self.shape.parity_slot(place.row);
        let end = place.from + buf.len() as u64;
        if slot != parity && self.unsynced.contains(place.row, place.from, end) {
            return Err(ReadError::Final(self.unknown(place.row, Operation::Read)));
        }
        let mut other = self.scratch.take(buf.len() as u64);
        let mut first = true;
        for from in (0..self.shape.members()).filter(|s| *s != slot) {
            let Some(member) = self.members.of_row(from, place.row) else {
                // The row lacks two members: the one in slot `from` and the one in slot `slot`. But
                // if a member has been added to `slot` meanwhile, the caller can try again.
                if self.members.of_row(slot, place.row).is_some() {
                    return Err(ReadError::Gone);
                }
                let slots = self.members.missing(place.row) | Slots::one(slot);
                let error = ArrayError::TooManyMissing { slots };
                return Err(ReadError::Final(error.during(
                    Operation::Read,
                    place.row * self.shape.row_len(),
                    buf.len() as u64,
                )));
            };
            let what = if from == parity { Count::ParityRead } else { Count::DataRead };
            if first {
                self.read_member(member, place, what, buf)?;
                first = false;
            } else {
                self.read_member(member, place, what, &mut other)?;
                xor_with(buf, &[&other]);
            }
        }
        Ok(())
    }

    /// Returns the error for missing data of a row whose parity may be wrong.
    pub(crate) fn unknown(&self, row: u64, operation: Operation) -> DeviceError {
        ArrayError::Unknown { row }.during(operation, row * self.shape.row_len(), 0)
    }
}

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
