//! Members that come and go, by command.

use crate::assemble_error::AssembleError;
use crate::candidate::Candidate;
use crate::exchange::NotExchanged;
use crate::maintenance::{Ended, Progress, Rebuild};
use crate::metadata::{Known, KnownMember};
use crate::open::OpenArray;
use crate::standing::{LogArea, Member, Standing};
use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::md::{
    BadBlocks, Cause, Features, Recovery, Role, SECTOR, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
    Superblock, Uuid, ppl,
};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// A device to become a member.
pub struct NewMember {
    /// What it is called in messages.
    pub name: PathBuf,
    /// The whole device, opened for writing.
    pub device: Arc<dyn Device>,
    /// The uuid that it gets if it has none in this array.
    pub uuid: Uuid,
}

/// A member that has its slot, and is to be brought in step by [`crate::Array::rebuild`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// Its slot.
    pub slot: usize,
    /// Which rows it misses: all, or for one that was a member before, those that the bitmap tells.
    /// `None` for one that was a member and missed nothing: it is in step already.
    pub misses: Option<Rebuild>,
}

/// How a member was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The new one has the slot, and all of its share.
    Done,
    /// The callback wanted it to stop: the array is as before.
    Stopped,
    /// The old one failed meanwhile, so the new one has the slot and is to be rebuilt.
    Added(Added),
}

impl OpenArray {
    /// Gives a new device, or one that was away, the slot that misses its member.
    ///
    /// # Errors
    /// If no slot is free, the device is too small, or something fails.
    pub fn add(&self, new: NewMember) -> Result<Added, AssembleError> {
        let status = self.array().status();
        let missing = status.members.iter().position(|standing| *standing == Standing::Missing);
        let slot = missing.ok_or_else(|| AssembleError::Invalid {
            what: "the array misses no member".to_owned(),
        })?;
        let own = self.own_superblock(&new, slot);
        let cleared = self.metadata().events_cleared();
        let (superblock, misses) = match own {
            Some(own) if self.metadata().is_in_step(&own) => (own, None),
            Some(own) if cleared.is_some_and(|cleared| own.events() >= cleared) => {
                (own, Some(Rebuild::Intended))
            }
            _ => (self.superblock_for(&new)?, Some(Rebuild::Whole)),
        };
        let standing = self.take(new, superblock, slot)?;
        // The array may have been written since it was looked at; then nothing tells what it missed.
        let misses = match (misses, standing) {
            (None, Recovery::Below(_)) => Some(Rebuild::Whole),
            (misses, _) => misses,
        };
        Ok(Added { slot, misses })
    }

    /// Bytes that a device needs to become a member.
    ///
    /// # Errors
    /// If the array has no member.
    pub fn needed_len(&self) -> Result<u64, AssembleError> {
        let members = self.metadata().members();
        let like = members.iter().find(|member| member.slot.is_some());
        let like = &like.ok_or(AssembleError::Nothing)?.superblock;
        Ok(like.data().offset.saturating_add(like.size().saturating_mul(SECTOR)))
    }

    /// Copies the member in `slot` to a new device, and lets that take the slot, while the array is
    /// used. It misses nothing meanwhile; a crash before the end leaves it as it was.
    ///
    /// # Errors
    /// If the slot has no member in step, the device is too small, or something fails. The array is as
    /// before then, unless the new device failed in the moment in which it took the slot.
    pub fn replace(
        &self,
        slot: usize,
        new: NewMember,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Replaced, AssembleError> {
        if self.array().status().members.get(slot) != Some(&Standing::InSync) {
            return Err(AssembleError::Invalid {
                what: format!("slot {slot} has no member in step: add the new one instead"),
            });
        }
        let again = NewMember { name: new.name.clone(), device: new.device.clone(), ..new };
        let superblock = self.superblock_for(&new)?;
        // What it says of itself is not true of its data from here on.
        let erased = new.device.write_durable_at(SUPERBLOCK_OFFSET, &[0; SUPERBLOCK_SIZE]);
        erased.map_err(|error| failed(&new.name, error))?;
        let (member, known) = self.member_of(new, superblock, slot)?;
        let array = self.array();
        let id = array.add_shadow(slot, member)?;
        let seat = || self.metadata().seat(known, slot, Recovery::InSync);
        let done = match array.copy_to_shadow(id, progress) {
            Ok(Ended::Done) => array.exchange(id, seat).map(|()| Replaced::Done),
            Ok(Ended::Stopped) => Ok(Replaced::Stopped),
            Err(error) => Err(error),
        };
        array.remove_shadow(id);
        match done {
            Err(NotExchanged::MemberLost) => Ok(Replaced::Added(self.add(again)?)),
            Err(NotExchanged::Failed(error)) => Err(error.into()),
            Ok(replaced) => Ok(replaced),
        }
    }

    /// Forgets the devices that failed, so that their numbers are free again; gives how many there
    /// were.
    ///
    /// # Errors
    /// What the members say.
    pub fn forget_failed(&self) -> Result<usize, DeviceError> {
        let mut count = 0;
        self.array().recording(|| {
            let (forgotten, lost) = self.metadata().forget_failed()?;
            count = forgotten;
            Ok(lost)
        })?;
        Ok(count)
    }

    /// The superblock of a device that was wholly in step in this slot once.
    fn own_superblock(&self, new: &NewMember, slot: usize) -> Option<Superblock> {
        let own = Candidate::read(&new.name, new.device.clone()).ok()?.superblock;
        let was_here = own.set() == self.metadata().array().set()
            && own.role() == Role::Active(slot as u16)
            && own.recovery() == Recovery::InSync
            && !own.features().contains(Features::BAD_BLOCKS);
        was_here.then_some(own)
    }

    /// A superblock for a device that is new to the array, laid out as the others are.
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
            return Err(AssembleError::TooSmall { name: new.name.clone(), len, needed });
        }
        superblock.set_data(offset, size);
        superblock.set_device(like.numbers(), new.uuid);
        superblock.set_bad_blocks(BadBlocks::None);
        Ok(superblock)
    }

    /// Writes the areas, then lets the device take the slot: in the superblocks, then here. Gives how
    /// it stands: in step only if it still is when it takes the slot.
    fn take(
        &self,
        new: NewMember,
        superblock: Superblock,
        slot: usize,
    ) -> Result<Recovery, AssembleError> {
        if self.may_have_been_here(&new, slot) {
            // Nothing of the log of who had the slot is to arrive in the new one.
            self.array().await_log_of(slot);
        }
        let (member, known) = self.member_of(new, superblock, slot)?;
        self.array().attach_recording(slot, member, || {
            let recovery = match self.metadata().is_in_step(&known.superblock) {
                true => Recovery::InSync,
                false => Recovery::Below(0),
            };
            let lost = self.metadata().seat(known, slot, recovery)?;
            Ok((lost, recovery))
        })
    }

    /// Whether a device may be one that had the slot since the array was put together. Those are open,
    /// and locked, until it goes: so it is what the array has in hand already, or says by its
    /// superblock that it was here. A new disk is waited for by nobody, whatever the old one hangs in.
    fn may_have_been_here(&self, new: &NewMember, slot: usize) -> bool {
        let has_superblock = match Candidate::read(&new.name, new.device.clone()) {
            Ok(own) => own.superblock.set() == self.metadata().array().set(),
            Err(AssembleError::Format { cause, .. }) => cause != Cause::NotASuperblock,
            Err(_) => true,
        };
        has_superblock || self.array().had(slot, &new.device)
    }

    /// The device as a member, for the array and for its metadata, with its areas written.
    fn member_of(
        &self,
        new: NewMember,
        superblock: Superblock,
        slot: usize,
    ) -> Result<(Member, Known), AssembleError> {
        let NewMember { name, device, .. } = new;
        self.prepare_areas(&*device, &superblock).map_err(|error| failed(&name, error))?;
        let member = Member {
            device: device.clone(),
            data_offset: superblock.data().offset,
            log: superblock.ppl().map(|area| LogArea { offset: area.offset, len: area.len }),
            recovered: 0,
        };
        let known = Known { name, device, superblock, slot: Some(slot), live: true };
        Ok((member, known))
    }

    /// An empty log, no bad blocks. The bitmap comes when the device takes the slot, for bits are
    /// set meanwhile.
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
    AssembleError::Device { name: name.into(), error }
}
