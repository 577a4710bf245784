//! Where seeds come from: `LANEFS_SEED`, or the fixed ones.

use lanefs_lanes::sync::atomic::{AtomicUsize, Ordering};

/// `count` seeds: the one that the environment names alone, or 1 to `count`.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("LANEFS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=count).collect(),
    }
}

/// Runs `run` on several threads at once over all of `jobs`, which are taken one by one.
pub fn in_parallel(jobs: Vec<u64>, run: impl Fn(u64) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(jobs.len());
    let taken = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(taken.fetch_add(1, Ordering::Relaxed)) {
                    run(*job);
                }
            });
        }
    });
}
