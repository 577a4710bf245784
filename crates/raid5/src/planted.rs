//! Bugs planted for the model checker: that they are found, and how soon.

use lanefs_lanes::sync::unscheduled::atomic::{AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How schedules are chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Choice {
    /// Each step by itself: finds what needs few steps of others in between.
    Steps,
    /// By priorities that change at this many places: finds what needs one to stand still while
    /// another does much.
    Priorities(usize),
}

/// Runs `model` on at most `schedules` schedules and asserts that one fails.
pub(crate) fn finds(schedules: usize, by: Choice, model: impl Fn() + Send + Sync + 'static) {
    let tried = Arc::new(AtomicU64::new(0));
    let counted = tried.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let counting = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        };
        match by {
            Choice::Steps => shuttle::check_random(counting, schedules),
            Choice::Priorities(changes) => shuttle::check_pct(counting, schedules, changes),
        }
    }));
    assert!(outcome.is_err(), "not found in {schedules} schedules");
    println!("found at schedule {}", tried.load(Ordering::Relaxed));
}
