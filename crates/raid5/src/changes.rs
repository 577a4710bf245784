//! Changes of members on request: add, replace, forget.

use crate::admission::{Added, Admission, NewMember, failed};
use crate::assemble_error::{AssembleError, InvalidRequest};
use crate::candidate::Candidate;
use crate::exchange::NotExchanged;
use crate::maintenance::{Ended, Progress, Rebuild};
use crate::metadata::Known;
use crate::open::OpenArray;
use crate::standing::Standing;
use lanefs_device::{DeviceError, Operation};
use lanefs_ondisk::md::{Features, Recovery, Role, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
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
