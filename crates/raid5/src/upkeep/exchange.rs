//! Replaces a member's device while the array is used.
//!
//! The new device is the member's *shadow* until it has all of the member's contents. Rows are
//! copied one by one, and writes to rows that are already copied go to both devices. Then the
//! shadow gets the slot, in this order:
//!
//! | order | state after a crash with another order |
//! |---|---|
//! | hold back log headers to the old member and finish its log entries, then superblocks | a half-written row whose log entry is only on the old member |
//! | flush, then superblocks that name the new member | superblocks that name a member without data |
//! | superblocks, then writes to the new member only | superblocks that name the old member, which misses data |
//!
//! Until a superblock names the new member, a start after a crash assembles the array with the old
//! member.

use crate::array::Array;
use crate::assembly::error::AssembleError;
use crate::assembly::metadata::AssignError;
use crate::base::layout::{BLOCK, Slots};
use crate::base::{ArrayError, Count};
use crate::log::LogLocation;
use crate::members::{Lost, Member, MemberId, ReadError, Standing, Stretch};
use crate::upkeep::maintenance::{Callback, Ended};
use lanefs_device::DeviceError;

/// Why a shadow did not get the slot.
#[derive(Debug)]
pub(crate) enum NotExchanged {
    /// The shadow's member was removed meanwhile.
    MemberLost,
    /// The shadow or another member failed.
    Failed(AssembleError),
}

impl From<DeviceError> for NotExchanged {
    fn from(error: DeviceError) -> NotExchanged {
        NotExchanged::Failed(error.into())
    }
}

impl From<AssembleError> for NotExchanged {
    fn from(error: AssembleError) -> NotExchanged {
        NotExchanged::Failed(error)
    }
}

impl Array {
    /// Adds a shadow to the member in `slot`, which is in sync.
    pub(crate) fn add_shadow(&self, slot: usize, member: Member) -> Result<MemberId, ArrayError> {
        self.check_member(slot, &member)?;
        let _state = self.state();
        match self.members.standing(slot) {
            Standing::InSync => self.members.put_shadow(slot, member),
            Standing::Missing | Standing::Rebuilding { .. } => Err(ArrayError::Gone { slot }),
        }
    }

    /// Removes the shadow; the member stays.
    pub(crate) fn remove_shadow(&self, id: MemberId) {
        let _state = self.state();
        self.members.drop_shadow(id, None);
    }

    /// Copies the contents of the member to its shadow.
    ///
    /// # Errors
    /// When the shadow or its member fails, or a block cannot be read or computed.
    pub(crate) fn copy_to_shadow(
        &self,
        id: MemberId,
        progress: Callback<'_>,
    ) -> Result<Ended, NotExchanged> {
        for row in 0..self.shape.rows() {
            self.copy_row(id, row)?;
            if progress(self.progress(row + 1)).is_break() {
                return Ok(Ended::Stopped);
            }
        }
        Ok(Ended::Done)
    }

    fn copy_row(&self, id: MemberId, row: u64) -> Result<(), NotExchanged> {
        let _hold = self.lock_row(row);
        let _unit = self.budget.take(row, &self.counters);
        let shadow = self.members.shadow(id.slot).filter(|shadow| shadow.id == id);
        let shadow = shadow.ok_or_else(|| self.why_no_shadow(id))?;
        let mut bytes = self.scratch.take(self.shape.chunk());
        let unknown = self.share_of_row(id.slot, row, &mut bytes)?;
        self.counters.add(Count::DataWrite, 1);
        let at = shadow.data_offset + row * self.shape.chunk();
        if let Err(error) = shadow.device.write_at(at, &bytes) {
            self.lose_shadow(&Lost::new(id, error.clone()));
            return Err(error.into());
        }
        for (from, error) in unknown {
            self.mark_bad([shadow], row, from, error)?;
        }
        // The shadow's valid rows are published before the row is released, so that the next writer
        // writes to the shadow too.
        if self.members.advance_shadow(id, row + 1) { Ok(()) } else { Err(self.why_no_shadow(id)) }
    }

    /// Reads the member's chunk of the row, and computes the blocks that cannot be read from the
    /// other members. The member is about to be removed, so a read error does not fail the member.
    /// Returns the offset of each block that cannot be computed either, with the error.
    fn share_of_row(
        &self,
        slot: usize,
        row: u64,
        bytes: &mut [u8],
    ) -> Result<Vec<(u64, DeviceError)>, NotExchanged> {
        let read = |from: u64, bytes: &mut [u8]| {
            let member = self.members.of_row(slot, row).ok_or(NotExchanged::MemberLost)?;
            match self.read_member(member, Stretch { row, from }, Count::DataRead, bytes) {
                Ok(()) => Ok(None),
                Err(ReadError::Gone) => Err(NotExchanged::MemberLost),
                Err(ReadError::Final(error) | ReadError::Lost(Lost { error, .. })) => {
                    Ok(Some(error))
                }
            }
        };
        let mut unknown = Vec::new();
        if read(0, bytes)?.is_none() {
            return Ok(unknown);
        }
        for (from, block) in (0..).step_by(BLOCK as usize).zip(bytes.chunks_mut(BLOCK as usize)) {
            let Some(error) = read(from, block)? else { continue };
            if self.rebuild_into(slot, Stretch { row, from }, block).is_err() {
                block.fill(0);
                unknown.push((from, error));
            }
        }
        Ok(unknown)
    }

    fn why_no_shadow(&self, id: MemberId) -> NotExchanged {
        self.members.given_up(id).map_or(NotExchanged::MemberLost, NotExchanged::from)
    }

    /// Gives the slot to the shadow, which must have all contents of the member. Calls `record`,
    /// which writes the superblocks.
    ///
    /// # Errors
    /// When the shadow or its member fails. If the state of the superblocks is unknown, the error
    /// is [`AssembleError::Unsettled`] and writes stop.
    pub(crate) fn exchange(
        &self,
        id: MemberId,
        record: impl FnOnce() -> Result<Slots, AssignError>,
    ) -> Result<(), NotExchanged> {
        let slot = id.slot;
        let log = self.quieten_log(slot)?;
        self.flush_members()?;
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        if self.members.shadow(slot).is_none_or(|shadow| shadow.id != id) {
            return Err(self.why_no_shadow(id));
        }
        let lost = record().map_err(|error| self.not_assigned(error))?;
        self.members.promote(id);
        if let Some(log) = &log {
            log.move_to(LogLocation::in_slot(&self.members, slot));
        }
        Ok(self.assigned(slot, lost)?)
    }
}
