//! What an array needs for its start: options, and the interface to its superblocks and bitmaps
//! ([`MetadataStore`]).

use crate::base::layout::{Geometry, Slots};
use crate::base::resources::StripeWake;
use crate::members::Member;
use lanefs_device::{Access, DeviceError};
use lanefs_lanes::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// How parity is restored after a crash during the writes of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consistency {
    /// A resync of all rows restores parity.
    Resync,
    /// A resync of the regions in the write-intent bitmap restores parity.
    Bitmap {
        /// Bytes of a member's data area that one bit covers: a power of two.
        chunk: u64,
        /// The bits as they are on the members, lowest bit first. A set bit marks a region for
        /// resync.
        bits: Vec<u8>,
    },
    /// After a crash, the partial parity log restores the parity of the rows that it lists.
    PartialParity {
        /// The signature of the array's log headers.
        signature: u32,
    },
}

/// Options that affect performance, but not results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policies {
    /// Which waiters are woken when a unit of the row budget is released.
    pub stripe_wake: StripeWake,
    /// The number of rows that may be under way at once. Each of them may need a whole row of
    /// memory.
    pub rows: usize,
    /// The largest number of unfinished entries that a header of the partial parity log carries.
    /// With 0, each header waits for a flush that finishes the entries of the previous one, as in
    /// md.
    pub log_carries: usize,
    /// Time limit of a member's flush, after which the member is failed if the array can work
    /// without it. With a limit, each member has a separate thread that flushes it, and all members
    /// are flushed in parallel. `None` means no limit: the thread that flushes the array flushes
    /// the members itself.
    pub flush_limit: Option<Duration>,
}

impl Default for Policies {
    fn default() -> Policies {
        Policies { stripe_wake: StripeWake::One, rows: 256, log_carries: 32, flush_limit: None }
    }
}

/// The input for starting an array.
pub struct Setup {
    /// The array's geometry.
    pub geometry: Geometry,
    /// The array's members, by slot.
    pub members: Vec<Option<Member>>,
    /// The array's metadata.
    pub record: Arc<dyn MetadataStore>,
    /// How the array's parity is restored after a crash.
    pub consistency: Consistency,
    /// Whether the metadata records the array as active.
    pub active: bool,
    /// Byte of the members' data areas from which parity may be wrong; `u64::MAX` means that all
    /// parity is right.
    pub unsynced_from: u64,
    /// Options that affect only performance.
    pub policies: Policies,
}

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
