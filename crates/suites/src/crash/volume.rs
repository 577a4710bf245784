//! Crash states by the hundred thousand: workload after workload on all processors, until enough
//! distinct states were checked.

use super::{Cuts, Findings, Tally, judge_workload};
use crate::together::Bases;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Mutex, Rank};
use std::time::Instant;

/// Operations of each workload.
const STEPS: usize = 250;
/// Cuts of each workload: so few that there are many workloads.
const CUTS: Cuts = Cuts::About(400);
/// e2fsck checks one of so many distinct states.
const E2FSCK: u64 = 8;

/// Checks at least `states` distinct crash states, of workloads from `seed` on, until `end` if it
/// is given; `progress` is called for each workload.
///
/// # Errors
/// A state in which a check fails, and which.
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
                    if let Err(why) = judge_workload(&bases, seed, STEPS, CUTS, &tally) {
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
