//! The clock of inodes.

use lanefs_ondisk::Time;

/// The time of the last clock tick, as inodes keep it.
pub(crate) fn now() -> Time {
    let now = lanefs_lanes::coarse_now();
    Time { secs: now.secs, nanos: now.nanos }
}
