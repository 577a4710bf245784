//! Counters of an array: member reads and writes by kind, waits, wake-ups.

use lanefs_lanes::PerLane;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};

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
