//! The coarse clock for timestamps.

#[cfg(any(loom, shuttle))]
use crate::sync::unscheduled::atomic::{AtomicU64, Ordering};

/// A wall-clock time with the resolution of the kernel's tick (a few milliseconds).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoarseTime {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// Returns the time of the last tick, so calls between two ticks return the same time. Makes no
/// system call.
#[cfg(not(any(loom, shuttle)))]
pub fn coarse_now() -> CoarseTime {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    CoarseTime { secs: t.tv_sec, nanos: t.tv_nsec as u32 }
}

#[cfg(any(loom, shuttle))]
crate::world::global! {
    static CALLS: AtomicU64 = AtomicU64::new(0)
}

/// Returns a time that ticks at every fourth call within an execution, so that a repeated schedule
/// sees the same times. Real ticks are rare, but the schedules must contain both cases: calls that
/// return different times, and calls that return the same time.
#[cfg(any(loom, shuttle))]
pub fn coarse_now() -> CoarseTime {
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    let milliseconds = 1_700_000_000_000 + calls / 4 * 130;
    CoarseTime {
        secs: (milliseconds / 1000) as i64,
        nanos: (milliseconds % 1000) as u32 * 1_000_000,
    }
}
