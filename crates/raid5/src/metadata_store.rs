//! The interface from a running array to its superblocks and bitmaps.

use crate::slots::Slots;
use lanefs_device::DeviceError;
use thiserror::Error;

/// A change of the metadata that could not be recorded. It is unknown which members have it.
#[derive(Debug, Clone, Error)]
#[error("{error}")]
pub struct RecordError {
    /// The error of the first member that could not be written.
    pub error: DeviceError,
    /// The members that failed while the change was being recorded, and without which the array can
    /// work. The store does not write to them any more, so the array must stop using them. It is
    /// unknown whether their failure is recorded.
    pub lost: Slots,
}

impl From<DeviceError> for RecordError {
    fn from(error: DeviceError) -> RecordError {
        RecordError { error, lost: Slots::NONE }
    }
}

impl From<RecordError> for DeviceError {
    fn from(error: RecordError) -> DeviceError {
        error.error
    }
}

/// The array's metadata on its members, in the form that the array needs.
///
/// Every call returns when the change is durable on all remaining members. Its result is the set of
/// members that failed *while the change was being recorded*. Their failure is recorded already, so
/// the array only has to stop using them. An error means that the state of the metadata is unknown.
/// If [`RecordError::lost`] is not empty, the array stops writes, because the failure of these
/// members may not be recorded.
pub trait MetadataStore: Send + Sync {
    /// Records that the array is active, so that parity may be wrong after a crash from now on.
    ///
    /// # Errors
    /// If too few members are left to record the change.
    fn mark_active(&self) -> Result<Slots, RecordError>;

    /// Records that the array is clean: all data is durable and all parity is right.
    ///
    /// # Errors
    /// If too few members are left to record the change.
    fn mark_clean(&self) -> Result<Slots, RecordError>;

    /// Records that these members failed. Does nothing for failures that are recorded already.
    ///
    /// # Errors
    /// If too few members are left to record the change, or to use the array.
    fn fail_members(&self, failed: Slots) -> Result<Slots, RecordError>;

    /// Records that the member in `slot` is rebuilt below this byte of its data area; `u64::MAX`
    /// means that it is in sync from now on.
    ///
    /// # Errors
    /// If too few members are left to record the change.
    fn set_recovered(&self, slot: usize, bytes: u64) -> Result<Slots, RecordError>;

    /// Records that parity is right below this byte of the members' data areas; `u64::MAX` means
    /// everywhere.
    ///
    /// # Errors
    /// If too few members are left to record the change.
    fn set_resynced(&self, bytes: u64) -> Result<Slots, RecordError>;

    /// Replaces bytes of the write-intent bitmap; `at` is the offset of the first byte in the
    /// bitmap's bits.
    ///
    /// # Errors
    /// If too few members are left to record the change.
    fn write_bits(&self, at: usize, bits: &[u8]) -> Result<Slots, RecordError>;

    /// Records changes of the members' bad blocks. Does nothing if members cannot have any.
    ///
    /// # Errors
    /// If too few members are left to record the change.
    fn store_bad_blocks(&self) -> Result<Slots, RecordError> {
        Ok(Slots::NONE)
    }
}
