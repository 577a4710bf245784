//! Gives slots to devices: writes the areas of a device, then makes it a member.

use crate::array::Array;
use crate::assembly::Candidate;
use crate::assembly::create::write_logs;
use crate::assembly::error::{AssembleError, MemberFault};
use crate::assembly::metadata::{Known, Metadata};
use crate::base::ArrayError;
use crate::members::bad_blocks::{BadBlocks, BadBlocksDevice, address};
use crate::members::{Member, Standing};
use crate::upkeep::maintenance::Rebuild;
use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::md::{BadBlocks as HasEntries, Cause, Recovery, SECTOR, Superblock, Uuid};
use std::path::{Path, PathBuf};

/// A device that is to become a member.
pub struct NewMember {
    /// The device's name in messages.
    pub name: PathBuf,
    /// The whole device, opened for writing.
    pub device: Arc<dyn Device>,
    /// The UUID for the device if it has none in this array.
    pub uuid: Uuid,
}

/// A member that has a slot now and may have to be rebuilt by [`crate::Array::rebuild`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// The member's slot.
    pub slot: usize,
    /// The rows to rebuild: all rows or, for a former member, the rows that are marked in the
    /// bitmap. `None` for a former member that missed no write and so is in sync already.
    pub misses: Option<Rebuild>,
}

/// An array and its superblocks, for a device that is to get a slot.
pub(crate) struct Admission<'a> {
    pub(crate) array: &'a Array,
    pub(crate) metadata: &'a Metadata,
}

impl Admission<'_> {
    /// Returns a slot without a member.
    pub(crate) fn free_slot(&self) -> Option<usize> {
        let members = &self.array.members;
        (0..members.count()).find(|slot| members.standing(*slot) == Standing::Missing)
    }

    /// Gives the slot without a member to a spare whose address is not in `failed`, and adds it
    /// there if the spare fails. Returns `None` if there is no such slot or spare, if nothing can
    /// be written, or if another change has given the slot away meanwhile.
    pub(crate) fn take_spare(
        &self,
        failed: &mut Vec<usize>,
    ) -> Option<Result<Added, AssembleError>> {
        if self.array.is_stopped() || self.array.is_read_only() {
            return None;
        }
        let slot = self.free_slot()?;
        // Before anything is written to the spare: for ever, if the slot had too many devices.
        self.array.members.check_place(slot).ok()?;
        let (Known { name, device, superblock, .. }, _claim) = self.metadata.claim_spare(failed)?;
        let address = address(&device);
        let new = NewMember { name, device, uuid: superblock.device() };
        let given = self.superblock_for(&new).and_then(|superblock| {
            // A former member of the slot may be a spare now. Its log is not to be written late.
            if self.array.had(slot, &new.device) {
                self.array.await_log_of(slot);
            }
            self.give(new, superblock, slot, Some(Rebuild::Whole))
        });
        match &given {
            Err(AssembleError::Array(ArrayError::SlotTaken { .. })) => return None,
            Err(_) => failed.push(address),
            Ok(_) => {}
        }
        Some(given)
    }

    /// Gives the slot to the device. `misses` are the rows that it misses if nothing is written
    /// until then.
    pub(crate) fn give(
        &self,
        new: NewMember,
        superblock: Superblock,
        slot: usize,
        misses: Option<Rebuild>,
    ) -> Result<Added, AssembleError> {
        let standing = self.take(new, superblock, slot)?;
        // If the array was written since `is_in_step` was called, it is unknown which writes the
        // device missed.
        let misses = match (misses, standing) {
            (None, Recovery::Below(_)) => Some(Rebuild::Whole),
            (misses, _) => misses,
        };
        Ok(Added { slot, misses })
    }

    /// Returns the superblock of a member.
    fn like(&self) -> Result<Superblock, AssembleError> {
        let member = self.metadata.members().into_iter().find(|member| member.slot.is_some());
        member.map(|member| member.superblock).ok_or(AssembleError::Nothing)
    }

    /// Returns the number of bytes that a device needs to become a member.
    pub(crate) fn needed_len(&self) -> Result<u64, AssembleError> {
        let like = self.like()?;
        Ok(like.data().offset.saturating_add(like.size().saturating_mul(SECTOR)))
    }

    /// Returns a superblock for a device that is new to the array. All areas have the same offsets
    /// as on the other members.
    pub(crate) fn superblock_for(&self, new: &NewMember) -> Result<Superblock, AssembleError> {
        let mut superblock = self.like()?;
        let offset = superblock.data().offset / SECTOR;
        let len = new.device.len();
        let size = (len / SECTOR).saturating_sub(offset);
        if size < superblock.size() {
            let needed = self.needed_len()?;
            return Err(AssembleError::member(&new.name, MemberFault::TooSmall { len, needed }));
        }
        superblock.set_data(offset, size);
        superblock.set_device(superblock.numbers(), new.uuid);
        superblock.set_bad_blocks(HasEntries::None);
        Ok(superblock)
    }

    /// Writes the log, the bitmap and the bad-block area, then gives the slot to the device: first
    /// in the superblocks, then in memory. Returns the standing that the device had when it got the
    /// slot.
    fn take(
        &self,
        new: NewMember,
        superblock: Superblock,
        slot: usize,
    ) -> Result<Recovery, AssembleError> {
        let (member, known) = self.member_of(new, superblock, slot)?;
        self.array.attach_recording(slot, member, || {
            let recovery = match self.metadata.is_in_step(&known.superblock) {
                true => Recovery::InSync,
                false => Recovery::Below(0),
            };
            let lost = self.metadata.assign_slot(known, slot, recovery)?;
            Ok((lost, recovery))
        })
    }

    /// Returns whether the device of `new` may have been in `slot` at some time since the array was
    /// assembled. Such a device has a superblock of this array (or one that cannot be read), or the
    /// array still has it open. The array keeps its devices open and locked, so no other program
    /// replaces their superblocks. For a new disk the result is false, so adding the disk does not
    /// wait for hanging I/O of an old disk.
    pub(crate) fn may_have_been_here(&self, new: &NewMember, slot: usize) -> bool {
        let has_superblock = match Candidate::read(&new.name, new.device.clone()) {
            Ok(own) => own.superblock.set() == self.metadata.array().set(),
            Err(AssembleError::Member { fault: MemberFault::Format(cause), .. }) => {
                cause != Cause::NotASuperblock
            }
            Err(_) => true,
        };
        has_superblock || self.array.had(slot, &new.device)
    }

    /// Writes the device's log and bad-block area, then returns the device in two forms: as a
    /// member for the array, and as an entry for the array's metadata.
    pub(crate) fn member_of(
        &self,
        new: NewMember,
        superblock: Superblock,
        slot: usize,
    ) -> Result<(Member, Known), AssembleError> {
        let NewMember { name, device, .. } = new;
        write_logs(&*device, &superblock).map_err(|error| failed(&name, error))?;
        let bad = Arc::new(BadBlocks::new(&device, &superblock, Vec::new()));
        let member = Member {
            device: Arc::new(BadBlocksDevice::new(device.clone(), bad.clone())),
            data_offset: superblock.data().offset,
            log: superblock.ppl(),
            recovered: 0,
            bad_blocks: Some(bad.clone()),
        };
        let bad_blocks = Some(bad);
        let known = Known { name, device, superblock, slot: Some(slot), live: true, bad_blocks };
        Ok((member, known))
    }
}

pub(crate) fn failed(name: &Path, error: DeviceError) -> AssembleError {
    AssembleError::member(name, error)
}
