//! How long an fsync takes lately: on memory or a fast device less than handing the reading of
//! requests to another thread, on a disk a thousand times as long.

use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An fsync of less than this is brief.
const BRIEF: Duration = Duration::from_micros(500);
/// The last one counts one part in so many of the average.
const WEIGHT: u64 = 4;

/// The average of the latest, in nanoseconds.
pub(super) struct Syncs {
    recent: AtomicU64,
}

impl Syncs {
    /// Not known to be brief.
    pub(super) fn new() -> Syncs {
        Syncs { recent: AtomicU64::new(2 * nanos(BRIEF)) }
    }

    pub(super) fn are_brief(&self) -> bool {
        self.recent.load(Ordering::Relaxed) < nanos(BRIEF)
    }

    /// One took so long. Of two at a time, one may be lost.
    pub(super) fn took(&self, time: Duration) {
        let recent = self.recent.load(Ordering::Relaxed);
        let time = nanos(time.min(Duration::from_secs(1)));
        self.recent.store((recent / WEIGHT) * (WEIGHT - 1) + time / WEIGHT, Ordering::Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_brief_when_the_last_ones_were() {
        let syncs = Syncs::new();
        assert!(!syncs.are_brief(), "nothing is known yet");
        (0..4).for_each(|_| syncs.took(Duration::from_micros(50)));
        assert!(syncs.are_brief());
        syncs.took(Duration::from_millis(10));
        assert!(!syncs.are_brief());
        (0..8).for_each(|_| syncs.took(Duration::from_micros(50)));
        assert!(syncs.are_brief());
        syncs.took(Duration::MAX);
        assert!(!syncs.are_brief());
    }
}
