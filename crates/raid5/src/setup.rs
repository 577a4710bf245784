//! The input for starting an array.

use crate::budget::StripeWake;
use crate::layout::Geometry;
use crate::metadata_store::MetadataStore;
use crate::standing::Member;
use lanefs_lanes::sync::Arc;
use std::time::Duration;

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
