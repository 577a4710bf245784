//! The clock for the times of inodes.

use lanefs_ondisk::Time;

/// Returns the time of the last clock tick as an inode stores it.
pub(crate) fn now() -> Time {
    let now = lanefs_lanes::coarse_now();
    Time { secs: now.secs, nanos: now.nanos }
}
