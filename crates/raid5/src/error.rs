//! Why an array says no.

use crate::slots::Slots;
use lanefs_device::{DeviceError, Operation};
use thiserror::Error;

/// What is wrong with the array as a whole; it comes as the source of a [`DeviceError`].
#[derive(Debug, Clone, Error)]
pub enum ArrayError {
    /// More than one member of a row is missing.
    #[error("members {} are missing: an array of level 5 can do without one", list(*slots))]
    TooManyMissing {
        /// Those that are missing, by slot.
        slots: Slots,
    },
    /// An earlier error, given here, stopped all writes.
    #[error("writes to the array were stopped: {cause}")]
    Stopped {
        /// The first error.
        cause: DeviceError,
    },
    /// The missing member's old content would be needed, and parity is not known to be right.
    #[error("row {row} can be neither read nor kept: a member is missing and parity unknown")]
    Unknown {
        /// The row.
        row: u64,
    },
    /// There is no such slot.
    #[error("the array has no slot {slot}")]
    NoSuchSlot {
        /// The slot asked for.
        slot: usize,
    },
    /// The slot has no member, or not the one any more that the work was for.
    #[error("the member of slot {slot} is not there, or was taken out meanwhile")]
    Gone {
        /// The slot asked for.
        slot: usize,
    },
    /// The slot has a member already, or had too many since the array was started.
    #[error("slot {slot} is taken")]
    SlotTaken {
        /// The slot asked for.
        slot: usize,
    },
    /// The member's device is too small for what the array keeps on it.
    #[error("the device for slot {slot} has {len} bytes, {needed} are needed")]
    TooSmall {
        /// Whose device.
        slot: usize,
        /// Its size in bytes.
        len: u64,
        /// What is needed, in bytes.
        needed: u64,
    },
}

fn list(slots: Slots) -> String {
    slots.iter().map(|slot| slot.to_string()).collect::<Vec<_>>().join(" and ")
}

impl ArrayError {
    /// As the error of an operation on the array.
    pub(crate) fn of(self, operation: Operation, offset: u64, len: u64) -> DeviceError {
        DeviceError::new(operation, offset, len, std::io::Error::other(self))
    }
}
