//! Bugs planted for the model checker: that they are found, and how soon.

use lanefs_lanes::sync::unscheduled::atomic::{AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs `model` on at most `schedules` random schedules and asserts that one fails.
pub(crate) fn finds(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    let tried = Arc::new(AtomicU64::new(0));
    let counted = tried.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        shuttle::check_random(
            move || {
                counted.fetch_add(1, Ordering::Relaxed);
                model();
            },
            schedules,
        );
    }));
    assert!(outcome.is_err(), "not found in {schedules} schedules");
    println!("found at schedule {}", tried.load(Ordering::Relaxed));
}
