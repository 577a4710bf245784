//! Options for opening an array.

use crate::setup::Policies;
use lanefs_device::Access;
use std::time::Duration;

/// The time limit of a member's flush. Linux retries the flush of a SCSI disk after 60 s
/// (`SD_FLUSH_TIMEOUT_MULTIPLIER` times `SD_TIMEOUT`, drivers/scsi/sd.h). This limit is twice as
/// long, so a disk that is merely slow under load does not count as failed.
const FLUSH_LIMIT: Duration = Duration::from_secs(120);

/// How to open an array that was not closed cleanly and has a missing member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DirtyAndDegraded {
    /// Refuse the array, because the missing member's data is lost in rows whose parity is wrong.
    #[default]
    Refuse,
    /// Start the array, and trust all parity.
    Accept,
}

/// Which thread does the background work of an open array: rebuilds, resyncs, and marking the array
/// clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Upkeep {
    /// A background thread of the array does the work.
    #[default]
    Background,
    /// The array does the work only inside calls that the caller makes for this purpose.
    Caller,
}

/// How to open an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayOptions {
    /// Read-only or read-write.
    pub access: Access,
    /// See [`DirtyAndDegraded`].
    pub dirty_and_degraded: DirtyAndDegraded,
    /// See [`Upkeep`].
    pub upkeep: Upkeep,
    /// Options that affect performance, but not results.
    pub policies: Policies,
}

impl ArrayOptions {
    /// Returns the default options for `access`.
    pub fn new(access: Access) -> ArrayOptions {
        ArrayOptions {
            access,
            dirty_and_degraded: DirtyAndDegraded::Refuse,
            upkeep: Upkeep::Background,
            policies: Policies { flush_limit: Some(FLUSH_LIMIT), ..Policies::default() },
        }
    }
}
