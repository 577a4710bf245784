//! Changes of members on request: add, replace, forget.
//!
//! A former member may be caught up from the write-intent bitmap. The bits say which rows the array
//! has written since the member left. They say nothing about a member that was written in another
//! history of the array, for example if the other members were set back to a snapshot. The event
//! counts and the bits of such a member can give it away, but need not. So its contents are
//! compared too, in a sample of the rows whose bits are clear.

use crate::array::Array;
use crate::assembly::Candidate;
use crate::assembly::error::{AssembleError, InvalidRequest};
use crate::assembly::metadata::{Known, Metadata};
use crate::assembly::open::OpenArray;
use crate::assembly::start::read_intents;
use crate::members::{Standing, Stretch};
use crate::upkeep::admission::{Added, Admission, NewMember, failed};
use crate::upkeep::exchange::NotExchanged;
use crate::upkeep::maintenance::{Ended, Progress, Rebuild};
use lanefs_device::{Device, DeviceError, Operation};
use lanefs_ondisk::md::{Features, Recovery, Role, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::ControlFlow;

/// The result of replacing a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The new member has the slot and is in sync.
    Done,
    /// The callback stopped the copy, so the array is unchanged.
    Stopped,
    /// The old member failed during the copy. The new device has the slot and must be rebuilt.
    Added(Added),
}

impl OpenArray {
    /// Gives the slot without a member to a new device, or to a former member.
    ///
    /// # Errors
    /// If no slot is free, the device is too small, or an operation fails. After an error the array
    /// is unchanged, except after [`AssembleError::Unsettled`].
    pub fn add(&self, new: NewMember) -> Result<Added, AssembleError> {
        let _claim = self.metadata().claim(&new.device).ok_or(InvalidRequest::Claimed)?;
        self.add_claimed(new)
    }

    fn add_claimed(&self, new: NewMember) -> Result<Added, AssembleError> {
        self.array().refuse_changes_if_stopped()?;
        let admission = self.admission();
        let slot = admission.free_slot().ok_or(InvalidRequest::NoneMissing)?;
        let (superblock, misses) = match self.former_member(&new, slot) {
            Some(own) if self.metadata().is_in_step(&own.superblock) => (own.superblock, None),
            Some(own)
                if self.metadata().may_cover(&own) && self.array().fits_clear_rows(slot, &own) =>
            {
                (own.superblock, Some(Rebuild::Intended))
            }
            _ => (admission.superblock_for(&new)?, Some(Rebuild::Whole)),
        };
        if admission.may_have_been_here(&new, slot) {
            // A log header that is still being written to the former member must not reach the new
            // member, which may be the same device.
            self.array().await_log_of(slot);
        }
        admission.give(new, superblock, slot, misses)
    }

    /// Adds a device that gets the slot of the next member that fails.
    ///
    /// # Errors
    /// The same as for [`OpenArray::add`].
    pub fn add_spare(&self, new: NewMember) -> Result<(), AssembleError> {
        let _claim = self.metadata().claim(&new.device).ok_or(InvalidRequest::Claimed)?;
        self.array().refuse_changes_if_stopped()?;
        let superblock = self.admission().superblock_for(&new)?;
        let NewMember { name, device, .. } = new;
        let (shown, at) = (name.clone(), device.clone());
        let mut known =
            Known { name, device, superblock, slot: None, live: true, bad_blocks: None };
        self.metadata().prepare_spare(&mut known).map_err(|error| failed(&shown, error))?;
        self.array().admit_spare(|| self.metadata().admit_spare(known))?;
        if self.metadata().has_spare(&at) {
            return Ok(());
        }
        let error = std::io::Error::other("it failed while it was recorded as a spare");
        Err(failed(&shown, DeviceError::new(Operation::Write, SUPERBLOCK_OFFSET, 0, error)))
    }

    /// Returns the number of bytes that a device needs to become a member.
    ///
    /// # Errors
    /// If the array has no member.
    pub fn needed_len(&self) -> Result<u64, AssembleError> {
        self.admission().needed_len()
    }

    /// While the array is in use, copies the member in `slot` to a new device, which then takes the
    /// slot. The replacement never degrades the array; a crash before completion leaves it
    /// unchanged.
    ///
    /// # Errors
    /// If the slot has no member in sync, if the new device is too small, or if a device fails.
    /// After an error the array is unchanged, except after [`AssembleError::Unsettled`]: then both
    /// devices must be kept, because the superblocks may name either of them.
    pub fn replace(
        &self,
        slot: usize,
        new: NewMember,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Replaced, AssembleError> {
        if self.array().status().members.get(slot) != Some(&Standing::InSync) {
            return Err(InvalidRequest::NotInSync { slot }.into());
        }
        let _claim = self.metadata().claim(&new.device).ok_or(InvalidRequest::Claimed)?;
        self.array().refuse_changes_if_stopped()?;
        let (name, device) = (new.name.clone(), new.device.clone());
        let replaced = self.replace_claimed(slot, new, progress);
        if let Ok(Replaced::Stopped) | Err(_) = replaced
            && !matches!(replaced, Err(AssembleError::Unsettled(_)))
        {
            self.metadata().renew_spare(&device).map_err(|error| failed(&name, error))?;
        }
        replaced
    }

    fn replace_claimed(
        &self,
        slot: usize,
        new: NewMember,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Replaced, AssembleError> {
        let again = NewMember { name: new.name.clone(), device: new.device.clone(), ..new };
        let superblock = self.admission().superblock_for(&new)?;
        // The data on the device changes from here on, so its old superblock is erased.
        let erased = new.device.write_durable_at(SUPERBLOCK_OFFSET, &[0; SUPERBLOCK_SIZE]);
        erased.map_err(|error| failed(&new.name, error))?;
        let (member, known) = self.admission().member_of(new, superblock, slot)?;
        let array = self.array();
        let id = array.add_shadow(slot, member)?;
        let assign = || self.metadata().assign_slot(known, slot, Recovery::InSync);
        let done = match array.copy_to_shadow(id, progress) {
            Ok(Ended::Done) => array.exchange(id, assign).map(|()| Replaced::Done),
            Ok(Ended::Stopped) => Ok(Replaced::Stopped),
            Err(error) => Err(error),
        };
        array.remove_shadow(id);
        match done {
            Err(NotExchanged::MemberLost) => Ok(Replaced::Added(self.add_claimed(again)?)),
            Err(NotExchanged::Failed(error)) => Err(error),
            Ok(replaced) => Ok(replaced),
        }
    }

    /// Forgets failed devices, which frees their device numbers. Returns how many devices were
    /// forgotten.
    ///
    /// # Errors
    /// If the change cannot be recorded.
    pub fn forget_failed(&self) -> Result<usize, DeviceError> {
        let mut count = 0;
        self.array().recording(|| {
            let (forgotten, lost) = self.metadata().forget_failed()?;
            count = forgotten;
            Ok(lost)
        })?;
        Ok(count)
    }

    fn admission(&self) -> Admission<'_> {
        Admission { array: self.array(), metadata: self.metadata() }
    }

    /// Returns the device with its superblock if it was once fully in sync in this slot and has no
    /// bad blocks.
    fn former_member(&self, new: &NewMember, slot: usize) -> Option<Candidate> {
        let own = Candidate::read(&new.name, new.device.clone()).ok()?;
        let superblock = &own.superblock;
        let was_here = superblock.set() == self.metadata().array().set()
            && superblock.role() == Role::Active(slot as u16)
            && superblock.recovery() == Recovery::InSync
            && !superblock.features().contains(Features::BAD_BLOCKS);
        was_here.then_some(own)
    }
}

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
