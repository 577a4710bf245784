//! Checks many thousands of crash states. Workload after workload runs, on all processors, until
//! enough distinct states are checked.

use super::check::{Cuts, check_workload};
use super::tally::{Findings, Tally};
use super::workload::options_of;
use crate::together::Bases;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Mutex, Rank};
use std::time::Instant;

/// The number of operations of each workload.
const STEPS: usize = 250;
/// The number of cuts of each workload. It is small, so that the states come from many workloads.
const CUTS: Cuts = Cuts::About(400);
/// e2fsck checks one state out of this many distinct states.
const E2FSCK: u64 = 8;

/// Checks at least `states` distinct crash states of workloads with seeds from `seed` on. Stops at
/// `end` if it is given; calls `progress` for each workload.
///
/// # Errors
/// Returns the first state in which a check fails.
pub fn many(
    seed: u64,
    states: u64,
    end: Option<Instant>,
    progress: &(dyn Fn(&Findings) + Sync),
) -> Result<Findings, String> {
    let (tally, bases) = (Tally::new(E2FSCK), Bases::default());
    let next = AtomicU64::new(seed);
    let failed = Mutex::new(Rank::Bucket, None);
    let is_done = || {
        let late = end.is_some_and(|end| Instant::now() >= end);
        late || tally.findings().states() >= states || failed.lock().is_some()
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while !is_done() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if let Err(why) =
                        check_workload(&bases, options_of(seed), seed, STEPS, CUTS, &tally)
                    {
                        failed.lock().get_or_insert(why);
                    }
                    progress(&tally.findings());
                }
            });
        }
    });
    let findings = tally.findings();
    match failed.into_inner() {
        Some(why) => Err(format!("after {findings}: {why}")),
        None => Ok(findings),
    }
}
