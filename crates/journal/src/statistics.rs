//! Counts of the journal's work.

use lanefs_lanes::LaneCounter;

/// Counts since the journal was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Transactions committed.
    pub commits: u64,
    /// Flushes sent to the device.
    pub flushes: u64,
    /// Durable writes sent: commit blocks, fast commits and the journal superblock.
    pub durable_writes: u64,
    /// Block images written to the log.
    pub blocks_logged: u64,
    /// Revoke records written to the log.
    pub revokes_logged: u64,
    /// Log blocks written in total: images, descriptors, revoke and commit blocks.
    pub log_blocks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Block images written in place.
    pub blocks_in_place: u64,
    /// The number of times that a joiner waited for credits.
    pub credit_waits: u64,
    /// Fast commits.
    pub fast_commits: u64,
    /// Log blocks of fast commits.
    pub fast_blocks: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// The counters behind [`Statistics`]. Each thread counts in the counters of its lane.
        #[derive(Debug)]
        pub(crate) struct Counters {
            $(pub(crate) $name: LaneCounter,)*
        }

        impl Counters {
            pub(crate) fn new() -> Counters {
                Counters { $($name: LaneCounter::new(0),)* }
            }

            pub(crate) fn snapshot(&self) -> Statistics {
                Statistics { $($name: self.$name.sum() as u64,)* }
            }
        }
    };
}

counters!(
    commits,
    flushes,
    durable_writes,
    blocks_logged,
    revokes_logged,
    log_blocks,
    checkpoints,
    blocks_in_place,
    credit_waits,
    fast_commits,
    fast_blocks
);
