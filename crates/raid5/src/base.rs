//! What all other files use: the errors of a running array, and its counters of member reads and
//! writes by kind, waits and wake-ups. Below: which bytes are where (`layout.rs`), the row budget
//! and the buffers (`resources.rs`).

pub(crate) mod layout;
pub(crate) mod resources;

use crate::base::layout::Slots;
use lanefs_device::{DeviceError, Operation};
use lanefs_lanes::PerLane;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
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
    pub(crate) fn during(self, operation: Operation, offset: u64, len: u64) -> DeviceError {
        DeviceError::new(operation, offset, len, std::io::Error::other(self))
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $variant:ident $field:ident),* $(,)?) => {
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Count { $($variant),* }

        /// Totals since the array was started; exact while no operation is under way.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Statistics { $($(#[$doc])* pub $field: u64),* }

        const COUNTS: usize = [$(Count::$variant),*].len();

        impl Counters {
            pub(crate) fn sums(&self) -> Statistics {
                Statistics { $($field: self.sum(Count::$variant)),* }
            }
        }

        impl Statistics {
            /// Returns the difference between each count and the same count in `earlier`.
            pub fn since(&self, earlier: &Statistics) -> Statistics {
                Statistics { $($field: self.$field.wrapping_sub(earlier.$field)),* }
            }

            /// Returns the sum of each count and the same count in `other`.
            pub fn plus(&self, other: &Statistics) -> Statistics {
                Statistics { $($field: self.$field.wrapping_add(other.$field)),* }
            }

            /// Returns each count with its name.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }
        }
    };
}

counts! {
    /// Reads of data from members.
    DataRead data_reads,
    /// Writes of data to members.
    DataWrite data_writes,
    /// Member reads that were needed to compute the new parity of a write; also counted as reads of
    /// data or parity.
    OldRead old_reads,
    /// Reads of old parity from members.
    ParityRead parity_reads,
    /// Writes of parity to members.
    ParityWrite parity_writes,
    /// Durable writes to the partial parity log.
    LogWrite log_writes,
    /// Writes of log headers.
    LogHeader log_headers,
    /// Bytes written to the partial parity log.
    LogByte log_bytes,
    /// Writes to the write-intent bitmap.
    BitWrite bit_writes,
    /// Flushes of single members.
    MemberFlush member_flushes,
    /// Strips whose data was all written, so that nothing was read.
    FullRow full_row,
    /// Strips whose parity was reconstructed: the chunks that the write does not touch were read
    /// first.
    Reconstruct reconstruct,
    /// Strips whose parity was modified: the old data of the written chunks and the old parity were
    /// read first.
    Modify modify,
    /// Strips written without parity, because the member with the parity is missing.
    NoParity no_parity,
    /// Pieces of reads that were computed from the other members.
    ReadRebuilt reads_rebuilt,
    /// Failed reads whose blocks were computed from the other members and rewritten.
    Corrected reads_corrected,
    /// Blocks of 4 KiB that could not be computed, and so were named in a bad-block log.
    Unreadable blocks_unreadable,
    /// The times that a thread waited for a range of a row.
    RowWait row_waits,
    /// Parts of rows that a thread took from waiting threads, to write them together with its own
    /// part.
    Gathered gathered,
    /// Waits for a unit of the row budget.
    BudgetWait budget_waits,
    /// Wake-ups of threads that waited for the budget.
    WakeUp budget_wake_ups,
    /// Releases of units of the budget.
    UnitFreed units_freed,
    /// Flushes that were necessary before a write could be logged: the partial parity log was full,
    /// or it had an unfinished entry for a block of that write.
    LogFlush log_flushes,
    /// Waits for a partial parity log: for room in the log, or for a header that another thread
    /// writes.
    LogWait log_waits,
    /// Wake-ups after which the thread had to wait for the log again.
    LogVainWake log_vain_wakes,
    /// Waits for another thread's flush of the array.
    FlushWait flush_waits,
}

/// One set of counters for each lane, so that threads on different lanes share no cache line when
/// they count.
#[derive(Debug)]
pub(crate) struct Counters {
    lanes: PerLane<[AtomicU64; COUNTS]>,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters { lanes: PerLane::new(|_| std::array::from_fn(|_| AtomicU64::new(0))) }
    }

    pub(crate) fn add(&self, what: Count, n: u64) {
        self.lanes.mine()[what as usize].fetch_add(n, Ordering::Relaxed);
    }

    fn sum(&self, what: Count) -> u64 {
        self.lanes.iter().map(|lane| lane[what as usize].load(Ordering::Relaxed)).sum()
    }
}
