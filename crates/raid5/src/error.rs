//! Errors of a running array.

use crate::slots::Slots;
use lanefs_device::{DeviceError, Operation};
use thiserror::Error;

/// An error of the array as a whole, returned as the source of a [`DeviceError`].
#[derive(Debug, Clone, Error)]
pub enum ArrayError {
    /// More than one member of a row is missing.
    #[error("members {} are missing: an array of level 5 can do without one", list(*slots))]
    TooManyMissing {
        /// The slots of the missing members.
        slots: Slots,
    },
    /// An earlier error stopped all writes.
    #[error("writes to the array were stopped: {cause}")]
    Stopped {
        /// The first error.
        cause: DeviceError,
    },
    /// The old contents of the missing member are needed, but the row's parity may be wrong.
    #[error("the missing data of row {row} cannot be computed: its parity may be wrong")]
    Unknown {
        /// The row.
        row: u64,
    },
    /// The slot does not exist.
    #[error("the array has no slot {slot}")]
    NoSuchSlot {
        /// The requested slot.
        slot: usize,
    },
    /// The slot has no member, or its member was removed during the operation.
    #[error("slot {slot} has no member, or its member was removed meanwhile")]
    Gone {
        /// The slot of the missing member.
        slot: usize,
    },
    /// The slot has a member already, or has had too many members since the array was started.
    #[error("slot {slot} is taken")]
    SlotTaken {
        /// The requested slot.
        slot: usize,
    },
    /// The member's device is too small for its areas.
    #[error("the device for slot {slot} has {len} bytes, {needed} are needed")]
    TooSmall {
        /// The slot of the device.
        slot: usize,
        /// The device's size in bytes.
        len: u64,
        /// The size needed, in bytes.
        needed: u64,
    },
}

/// Returns whether the host has no space for a write to a member file. This is no fault of the
/// member: the next write to another member would fail in the same way. So the array stops writes,
/// and keeps all members.
pub(crate) fn is_full(error: &DeviceError) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.source.kind(), StorageFull | QuotaExceeded)
}

fn list(slots: Slots) -> String {
    slots.iter().map(|slot| slot.to_string()).collect::<Vec<_>>().join(" and ")
}

impl ArrayError {
    /// Converts this error into the error of an operation on the array.
    pub(crate) fn of(self, operation: Operation, offset: u64, len: u64) -> DeviceError {
        DeviceError::new(operation, offset, len, std::io::Error::other(self))
    }
}
