//! Changes which members a running array has: fails members and gives slots to members.

use crate::array::Array;
use crate::array::setup::RecordError;
use crate::assembly::error::AssembleError;
use crate::assembly::metadata::AssignError;
use crate::base::layout::Slots;
use crate::base::{ArrayError, is_full};
use crate::log::LogLocation;
use crate::members::{Lost, Member, MemberId, check_log, check_size};
use lanefs_device::{Device, DeviceError, Operation};
use lanefs_lanes::sync::Arc;

impl Array {
    /// Records the member in `slot` as failed, and removes it.
    ///
    /// # Errors
    /// If the slot does not exist, if the array cannot work without the member, if writes were
    /// stopped, or if the failure cannot be recorded. Only a failure that cannot be recorded stops
    /// writes.
    pub fn fail(&self, slot: usize) -> Result<(), DeviceError> {
        if slot >= self.members.count() {
            return Err(ArrayError::NoSuchSlot { slot }.during(Operation::Write, 0, 0));
        }
        let _state = self.state();
        let after = self.members.not_in_sync() | Slots::one(slot);
        if after.count() > 1 {
            let error = ArrayError::TooManyMissing { slots: after };
            return Err(error.during(Operation::Write, 0, 0));
        }
        self.lose_locked(slot, None)
    }

    /// Handles a member's failure: records it and continues without the member, or stops the
    /// array's writes.
    ///
    /// If the failed member was removed meanwhile, its failure is recorded already, or writes are
    /// stopped. The failure does not concern the present member of the slot.
    pub(crate) fn lose(&self, lost: Lost) -> Result<(), DeviceError> {
        let _state = self.state();
        match self.members.still(lost.member) {
            None => {
                self.members.drop_shadow(lost.member, Some(&lost.error));
                Ok(())
            }
            Some(member) => self.lose_locked(member.id.slot, Some(&lost)),
        }
    }

    /// Handles a shadow's failure: the slot keeps its member. Returns `true` if the shadow became
    /// the member before it failed, so that a member of the array has failed.
    pub(crate) fn lose_shadow(&self, lost: &Lost) -> bool {
        let _state = self.state();
        self.members.drop_shadow(lost.member, Some(&lost.error));
        self.members.still(lost.member).is_some()
    }

    /// Handles a write that reached a member's shadow but not the member. Returns `true` if the
    /// shadow has become the member meanwhile, so that the write has reached the member. Otherwise
    /// drops the shadow, so that no exchange happens after the member's failure and before that
    /// failure is recorded.
    pub(crate) fn promoted_or_dropped(&self, shadow: MemberId) -> bool {
        let _state = self.state();
        self.members.drop_shadow(shadow, None);
        self.members.still(shadow).is_some()
    }

    /// # Locking
    /// The caller holds the lock of the array's state.
    fn lose_locked(&self, slot: usize, why: Option<&Lost>) -> Result<(), DeviceError> {
        if self.members.present(slot).is_none() {
            return Ok(());
        }
        let after = self.members.not_in_sync() | Slots::one(slot);
        if after.count() > 1 {
            let error = ArrayError::TooManyMissing { slots: after }.during(Operation::Write, 0, 0);
            let error = why.map_or(error, |lost| lost.error.clone());
            // The array cannot work without this member; another member may have failed after the
            // operation was planned. A failed read changed nothing, so only that read returns the
            // error, and writes are not stopped.
            if why.is_none_or(|lost| lost.unread.is_none()) {
                self.stop_writes(&error);
            }
            return Err(error);
        }
        if let Some(full) = why.map(|lost| &lost.error).filter(|error| is_full(error)) {
            self.stop_writes(full);
            return Err(full.clone());
        }
        let lost = Slots::one(slot);
        if let Err(stopped) = self.refuse_if_stopped(0, 0) {
            // Writes are stopped, so the failure is not recorded. A read continues without the
            // member. An operation that changes data must not: see the invariants in `array.rs`.
            return match why.and_then(|lost| lost.unread) {
                Some(_) => self.note(lost),
                None => Err(why.map_or(stopped, |lost| lost.error.clone())),
            };
        }
        let recorded = self.record.fail_members(lost).map(|more| lost | more);
        let recorded = recorded.map_err(|e| RecordError { lost: lost | e.lost, ..e });
        self.noted(recorded).map(drop)
    }

    /// Handles the result of a change of the metadata: stops using the members that failed
    /// meanwhile, and returns their slots. If the change was not recorded, their failure may not be
    /// recorded either, so writes stop first.
    ///
    /// # Locking
    /// The caller holds the lock of the array's state.
    pub(crate) fn noted(&self, change: Result<Slots, RecordError>) -> Result<Slots, DeviceError> {
        match change {
            Ok(lost) => self.note(lost).map(|()| lost),
            Err(failed) if failed.lost.is_empty() => Err(failed.error),
            Err(failed) => Err(self.stop_after(failed)),
        }
    }

    /// Stops writes after a change that may be recorded on some members only, and stops using the
    /// members that failed meanwhile. Returns the error of the change.
    fn stop_after(&self, failed: RecordError) -> DeviceError {
        self.stop_writes(&failed.error);
        // An error here is ignored, because the error of the change came first.
        let _ = self.note(failed.lost);
        failed.error
    }

    /// Returns the error of a slot assignment that failed. Stops writes if the members may disagree
    /// about which device has the slot.
    ///
    /// # Locking
    /// The caller holds the lock of the array's state.
    pub(crate) fn not_assigned(&self, error: AssignError) -> AssembleError {
        match error {
            AssignError::Unchanged(error) => error.into(),
            AssignError::Unsettled(failed) => AssembleError::Unsettled(self.stop_after(failed)),
        }
    }

    /// Calls `record` to record that a device is a spare.
    pub(crate) fn admit_spare(
        &self,
        record: impl FnOnce() -> Result<Slots, AssignError>,
    ) -> Result<(), AssembleError> {
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        let lost = record().map_err(|error| self.not_assigned(error))?;
        self.note(lost).map_err(AssembleError::Unsettled)
    }

    /// Handles the members that failed while a slot assignment was recorded. After an error here,
    /// the superblocks have the change.
    ///
    /// # Locking
    /// The caller holds the lock of the array's state.
    pub(crate) fn assigned(&self, slot: usize, lost: Slots) -> Result<(), AssembleError> {
        self.note(lost).map_err(AssembleError::Unsettled)?;
        match lost.contains(slot) {
            true => {
                let gone = ArrayError::Gone { slot }.during(Operation::Write, 0, 0);
                Err(AssembleError::Unsettled(gone))
            }
            false => Ok(()),
        }
    }

    /// Stops using members. Their failure is recorded already, or writes are stopped.
    ///
    /// # Locking
    /// The caller holds the lock of the array's state.
    pub(crate) fn note(&self, lost: Slots) -> Result<(), DeviceError> {
        for slot in lost.iter() {
            self.members.remove(slot);
            if let Some(log) = self.logs.get(slot) {
                log.move_to(None);
            }
        }
        // After the removal: a write that ends later finds the member removed, and lists its row.
        if !lost.is_empty() {
            self.unsynced.unflushed.add_all();
        }
        let missing = self.members.not_in_sync();
        if !lost.is_empty() && missing.count() > 1 {
            let error =
                ArrayError::TooManyMissing { slots: missing }.during(Operation::Write, 0, 0);
            self.stop_writes(&error);
            return Err(error);
        }
        Ok(())
    }

    /// Changes the metadata, and holds the lock of the array's state meanwhile.
    pub(crate) fn recording(
        &self,
        change: impl FnOnce() -> Result<Slots, RecordError>,
    ) -> Result<(), DeviceError> {
        let _state = self.state();
        self.refuse_if_stopped(0, 0)?;
        self.noted(change()).map(drop)
    }

    /// Puts a member into `slot`, where it replaces any present member. The new member's rows below
    /// `rows` are valid.
    ///
    /// # Locking
    /// The caller holds the lock of the array's state.
    pub(crate) fn install(&self, slot: usize, member: Member, rows: u64) -> Result<(), ArrayError> {
        self.members.put(slot, member, rows)?;
        if let Some(log) = self.logs.get(slot) {
            log.move_to(LogLocation::in_slot(&self.members, slot));
        }
        Ok(())
    }

    /// Checks that the array can use the device in `slot`.
    pub(crate) fn check_member(&self, slot: usize, member: &Member) -> Result<(), ArrayError> {
        check_size(&self.shape, slot, member)?;
        match self.logs.get(slot) {
            Some(log) => check_log(slot, member.log, log.per_write()),
            None => Ok(()),
        }
    }

    /// Waits for log headers that are being written to former members of `slot`. If the next member
    /// is the same device, a late header would otherwise end up in the new member's log.
    pub(crate) fn await_log_of(&self, slot: usize) {
        if let Some(log) = self.logs.get(slot) {
            log.await_writers();
        }
    }

    /// Returns whether this device has or had `slot`.
    pub(crate) fn had(&self, slot: usize, device: &Arc<dyn Device>) -> bool {
        self.members.had(slot, device)
    }
}
