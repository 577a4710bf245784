//! How often and how long threads waited for a lock, by rank.

use crate::rank::Rank;
use crate::sync::unscheduled::atomic::{AtomicU64, Ordering};
use crate::world;
use std::time::Instant;

/// The waits for contended locks of one rank, since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contention {
    /// The rank of the locks.
    pub rank: Rank,
    /// The number of waits.
    pub waits: u64,
    /// The total time of the waits, in nanoseconds.
    pub nanos: u64,
}

#[repr(align(128))]
struct Waits {
    count: AtomicU64,
    nanos: AtomicU64,
}

static WAITS: [Waits; Rank::ALL.len()] =
    [const { Waits { count: AtomicU64::new(0), nanos: AtomicU64::new(0) } }; Rank::ALL.len()];

/// Returns the contended waits so far, one entry per rank, in the order of the ranks. Only waits
/// are counted, so an uncontended acquisition has no extra cost.
pub fn contention() -> Vec<Contention> {
    Rank::ALL
        .iter()
        .map(|&rank| {
            let of = &WAITS[rank as usize];
            Contention {
                rank,
                waits: of.count.load(Ordering::Relaxed),
                nanos: of.nanos.load(Ordering::Relaxed),
            }
        })
        .collect()
}

/// Takes a lock of `rank` with `try_lock` if it is free, and otherwise waits for it with `lock`.
#[inline]
pub(crate) fn taken<G>(
    rank: Rank,
    try_lock: impl FnOnce() -> Option<G>,
    lock: impl FnOnce() -> G,
) -> G {
    match world::COUNTS_WAITS {
        true => try_lock().unwrap_or_else(|| waited(rank, lock)),
        false => lock(),
    }
}

/// Runs `wait`, which waits for a lock of `rank`. Counts the wait and adds its duration.
#[cold]
fn waited<R>(rank: Rank, wait: impl FnOnce() -> R) -> R {
    let since = Instant::now();
    let result = wait();
    let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let of = &WAITS[rank as usize];
    of.count.fetch_add(1, Ordering::Relaxed);
    of.nanos.fetch_add(nanos, Ordering::Relaxed);
    result
}
