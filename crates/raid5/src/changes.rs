//! Changes of members on request: add, replace, forget.

use crate::assemble_error::{AssembleError, InvalidRequest, MemberFault};
use crate::bad_blocks::{BadBlocks, BadBlocksDevice};
use crate::candidate::Candidate;
use crate::exchange::NotExchanged;
use crate::maintenance::{Ended, Progress, Rebuild};
use crate::metadata::{Known, KnownMember};
use crate::open::OpenArray;
use crate::standing::{LogArea, Member, Standing};
use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::md::{
    BadBlocks as HasEntries, Cause, Features, Recovery, Role, SECTOR, SUPERBLOCK_OFFSET,
    SUPERBLOCK_SIZE, Superblock, Uuid, ppl,
};
use std::ops::ControlFlow;
use std::path::PathBuf;

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
        let status = self.array().status();
        let missing = status.members.iter().position(|standing| *standing == Standing::Missing);
        let slot = missing.ok_or(InvalidRequest::NoneMissing)?;
        let (superblock, misses) = match self.former_member(&new, slot) {
            Some(own) if self.metadata().is_in_step(&own.superblock) => (own.superblock, None),
            Some(own)
                if self.metadata().may_cover(&own) && self.array().fits_clear_rows(slot, &own) =>
            {
                (own.superblock, Some(Rebuild::Intended))
            }
            _ => (self.superblock_for(&new)?, Some(Rebuild::Whole)),
        };
        let standing = self.take(new, superblock, slot)?;
        // If the array was written since `is_in_step` was called, it is unknown which writes the
        // device missed.
        let misses = match (misses, standing) {
            (None, Recovery::Below(_)) => Some(Rebuild::Whole),
            (misses, _) => misses,
        };
        Ok(Added { slot, misses })
    }

    /// Returns the number of bytes that a device needs to become a member.
    ///
    /// # Errors
    /// If the array has no member.
    pub fn needed_len(&self) -> Result<u64, AssembleError> {
        let members = self.metadata().members();
        let like = members.iter().find(|member| member.slot.is_some());
        let like = &like.ok_or(AssembleError::Nothing)?.superblock;
        Ok(like.data().offset.saturating_add(like.size().saturating_mul(SECTOR)))
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
        let again = NewMember { name: new.name.clone(), device: new.device.clone(), ..new };
        let superblock = self.superblock_for(&new)?;
        // The data on the device changes from here on, so its old superblock is erased.
        let erased = new.device.write_durable_at(SUPERBLOCK_OFFSET, &[0; SUPERBLOCK_SIZE]);
        erased.map_err(|error| failed(&new.name, error))?;
        let (member, known) = self.member_of(new, superblock, slot)?;
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
            Err(NotExchanged::MemberLost) => Ok(Replaced::Added(self.add(again)?)),
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

    /// Returns a superblock for a device that is new to the array. All areas have the same offsets
    /// as on the other members.
    fn superblock_for(&self, new: &NewMember) -> Result<Superblock, AssembleError> {
        let members = self.metadata().members();
        let like = members.iter().find(|member| member.slot.is_some());
        let KnownMember { superblock: like, .. } = like.ok_or(AssembleError::Nothing)?;
        let mut superblock = like.clone();
        let offset = like.data().offset / SECTOR;
        let len = new.device.len();
        let size = (len / SECTOR).saturating_sub(offset);
        if size < like.size() {
            let needed = self.needed_len()?;
            return Err(AssembleError::member(&new.name, MemberFault::TooSmall { len, needed }));
        }
        superblock.set_data(offset, size);
        superblock.set_device(like.numbers(), new.uuid);
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
        if self.may_have_been_here(&new, slot) {
            // A log header that is still being written to the former member must not reach the new
            // member, which may be the same device.
            self.array().await_log_of(slot);
        }
        let (member, known) = self.member_of(new, superblock, slot)?;
        self.array().attach_recording(slot, member, || {
            let recovery = match self.metadata().is_in_step(&known.superblock) {
                true => Recovery::InSync,
                false => Recovery::Below(0),
            };
            let lost = self.metadata().assign_slot(known, slot, recovery)?;
            Ok((lost, recovery))
        })
    }

    /// Returns whether the device of `new` may have been in `slot` at some time since the array was
    /// assembled. Such a device has a superblock of this array (or one that cannot be read), or the
    /// array still has it open. The array keeps its devices open and locked, so no other program
    /// replaces their superblocks. For a new disk the result is false, so adding the disk does not
    /// wait for hanging I/O of an old disk.
    fn may_have_been_here(&self, new: &NewMember, slot: usize) -> bool {
        let has_superblock = match Candidate::read(&new.name, new.device.clone()) {
            Ok(own) => own.superblock.set() == self.metadata().array().set(),
            Err(AssembleError::Member { fault: MemberFault::Format(cause), .. }) => {
                cause != Cause::NotASuperblock
            }
            Err(_) => true,
        };
        has_superblock || self.array().had(slot, &new.device)
    }

    /// Writes the device's log and bad-block area, then returns the device in two forms: as a
    /// member for the array, and as an entry for the array's metadata.
    fn member_of(
        &self,
        new: NewMember,
        superblock: Superblock,
        slot: usize,
    ) -> Result<(Member, Known), AssembleError> {
        let NewMember { name, device, .. } = new;
        // A device that was a member may keep its rows, so it also keeps its bad blocks.
        let had = Candidate { name, device, superblock };
        let bad = had.bad_blocks()?;
        let Candidate { name, device, superblock } = had;
        self.prepare_areas(&*device, &superblock).map_err(|error| failed(&name, error))?;
        let bad = Arc::new(BadBlocks::unrecorded(&device, &superblock, bad));
        let member = Member {
            device: Arc::new(BadBlocksDevice::new(device.clone(), bad.clone())),
            data_offset: superblock.data().offset,
            log: superblock.ppl().map(|area| LogArea { offset: area.offset, len: area.len }),
            recovered: 0,
            bad_blocks: Some(bad.clone()),
        };
        let bad_blocks = Some(bad);
        let known = Known { name, device, superblock, slot: Some(slot), live: true, bad_blocks };
        Ok((member, known))
    }

    /// Writes an empty log and an empty bad-block log. The bitmap is written when the device takes
    /// the slot, because writes may set further bits until then.
    fn prepare_areas(
        &self,
        device: &dyn Device,
        superblock: &Superblock,
    ) -> Result<(), DeviceError> {
        if let Some(area) = superblock.ppl() {
            let mut block = [0; ppl::HEADER_SIZE];
            ppl::Header::empty(ppl::signature(superblock.set())).encode_into(&mut block);
            device.write_zeros(area.offset, area.len)?;
            device.write_at(area.offset, &block)?;
        }
        if let Some(area) = superblock.bad_block_log() {
            device.write_at(area.offset, &vec![0xff; area.len as usize])?;
        }
        device.flush()
    }
}

fn failed(name: &std::path::Path, error: DeviceError) -> AssembleError {
    AssembleError::member(name, error)
}
