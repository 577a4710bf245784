//! The clock of inodes.

use lanefs_ondisk::Time;

/// Returns the time of the last clock tick, in the type of inode times.
pub(crate) fn now() -> Time {
    let now = lanefs_lanes::coarse_now();
    Time { secs: now.secs, nanos: now.nanos }
}
