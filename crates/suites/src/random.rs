//! The seeds for tests: the single seed in `LANEFS_SEED`, or a series that starts at
//! `LANEFS_FIRST_SEED` or at 1.

use lanefs_lanes::sync::atomic::{AtomicUsize, Ordering};

/// If `LANEFS_SEED` is set, returns only this seed. Otherwise returns `count` seeds, starting at
/// `LANEFS_FIRST_SEED` or at 1.
pub fn seeds(count: u64) -> Vec<u64> {
    let named = |name: &str| std::env::var(name).ok().and_then(|seed| seed.parse::<u64>().ok());
    match (named("LANEFS_SEED"), named("LANEFS_FIRST_SEED").unwrap_or(1)) {
        (Some(seed), _) => vec![seed],
        (None, first) => (first..first.saturating_add(count)).collect(),
    }
}

/// Calls `run` for each of `jobs`, on several threads.
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
