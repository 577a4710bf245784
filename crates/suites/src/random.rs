//! Where seeds come from: `LANEFS_SEED`, or the fixed ones.

/// `count` seeds: the one that the environment names alone, or 1 to `count`.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("LANEFS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=count).collect(),
    }
}

/// Runs `run` on several threads at once over all of `jobs`, which are taken one by one.
pub fn in_parallel<T: Send>(jobs: Vec<T>, run: impl Fn(T) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(jobs.len());
    let jobs = std::sync::Mutex::new(jobs.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Bound first, so that the lock is not held while the job runs.
                while let Some(job) = next(&jobs) {
                    run(job);
                }
            });
        }
    });
}

fn next<T>(jobs: &std::sync::Mutex<std::vec::IntoIter<T>>) -> Option<T> {
    jobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next()
}
