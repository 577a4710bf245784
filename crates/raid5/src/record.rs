//! What the running array asks of its superblocks and bitmaps.

use crate::slots::Slots;
use lanefs_device::DeviceError;

/// The array's metadata on its members, as the engine needs it.
///
/// Every call returns when what it says is durable on all members that are left. It gives the
/// members that failed *while it was being recorded*: they are then recorded as failed already, and
/// the engine only takes note. An error means that nothing could be relied upon any more, and stops
/// the array's writes.
pub trait Record: Send + Sync {
    /// Data is about to be written: a crash from now on needs parity to be looked at.
    ///
    /// # Errors
    /// As for all of them: when too few members are left to record it.
    fn mark_active(&self) -> Result<Slots, DeviceError>;

    /// All data is durable and all parity right.
    ///
    /// # Errors
    /// As for all of them.
    fn mark_clean(&self) -> Result<Slots, DeviceError>;

    /// These members failed. Recording what is recorded already does nothing.
    ///
    /// # Errors
    /// As for all of them.
    fn fail_members(&self, failed: Slots) -> Result<Slots, DeviceError>;

    /// The member in `slot` is rebuilt below this byte of its data area; `u64::MAX`: wholly, and is
    /// in sync from now on.
    ///
    /// # Errors
    /// As for all of them.
    fn set_recovered(&self, slot: usize, bytes: u64) -> Result<Slots, DeviceError>;

    /// Parity is right below this byte of the members' data areas; `u64::MAX`: everywhere.
    ///
    /// # Errors
    /// As for all of them.
    fn set_resynced(&self, bytes: u64) -> Result<Slots, DeviceError>;

    /// Replaces bytes of the write-intent bitmap from byte `at` of its bits on.
    ///
    /// # Errors
    /// As for all of them.
    fn write_bits(&self, at: usize, bits: &[u8]) -> Result<Slots, DeviceError>;
}
