//! What an array is started from.

use crate::budget::StripeWake;
use crate::layout::Geometry;
use crate::record::Record;
use crate::standing::Member;
use lanefs_lanes::sync::Arc;
use std::time::Duration;

/// How the array bridges a crash in the middle of a row's writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consistency {
    /// Not at all: every row's parity is found anew.
    Resync,
    /// The write-intent bitmap tells where.
    Bitmap {
        /// Bytes of a member's share that one bit stands for: a power of two.
        chunk: u64,
        /// The bits as the members have them, lowest first; set: to be resynchronised.
        bits: Vec<u8>,
    },
    /// The partial parity log makes it right without looking at other rows.
    PartialParity {
        /// What the array's log headers begin with.
        signature: u32,
    },
}

/// Choices that change no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policies {
    /// Who is woken when a unit of the row budget comes free.
    pub stripe_wake: StripeWake,
    /// Rows that may be under way at once. Each may take the memory of a row.
    pub rows: usize,
    /// Unfinished entries that a header of the partial parity log carries on at most; with 0 each
    /// header waits for a flush that finishes those of the one before, as md does.
    pub log_carries: usize,
    /// How long a member's flush may take before the member is failed, if the array can do without it;
    /// then each member is flushed by a thread of its own, all at once. `None`: for ever, by the thread
    /// that flushes the array.
    pub flush_limit: Option<Duration>,
}

impl Default for Policies {
    fn default() -> Policies {
        Policies { stripe_wake: StripeWake::One, rows: 256, log_carries: 32, flush_limit: None }
    }
}

/// What an array is started from.
pub struct Setup {
    /// Its shape.
    pub geometry: Geometry,
    /// Its members, by slot.
    pub members: Vec<Option<Member>>,
    /// Its metadata.
    pub record: Arc<dyn Record>,
    /// How it bridges a crash.
    pub consistency: Consistency,
    /// Whether its metadata says that it was being written.
    pub active: bool,
    /// Byte of the members' shares from which on parity may be wrong; `u64::MAX`: nowhere.
    pub unsynced_from: u64,
    /// Choices.
    pub policies: Policies,
}
