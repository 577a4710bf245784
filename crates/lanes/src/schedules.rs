//! Explores the schedules of a loom model.

use crate::sync::unscheduled::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Explores all schedules of `model` with at most `preemptions` preemptions, and prints their
/// number.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let schedules = Arc::new(AtomicU64::new(0));
    let counted = schedules.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} schedules", schedules.load(Ordering::Relaxed));
}
