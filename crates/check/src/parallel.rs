//! Runs numbered pieces of work on several threads.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::sync::thread;

/// Calls `work` for each number below `count`, on `threads` threads. A thread takes the next number
/// when its call of `work` has returned, so the threads stay busy even if some calls take longer
/// than others. `state` makes a separate state for each thread.
pub fn each<S>(
    threads: usize,
    count: u64,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, u64) + Sync,
) {
    let next = AtomicU64::new(0);
    let run = || {
        let mut state = state();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count {
                return;
            }
            work(&mut state, n);
        }
    };
    if threads <= 1 || count <= 1 {
        return run();
    }
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
}
