//! The coarse clock that timestamps come from.

/// A wall-clock time of the kernel's tick (a few milliseconds).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoarseTime {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds below a second.
    pub nanos: u32,
}

/// The time of the last tick: no system call, and equal between ticks.
pub fn coarse_now() -> CoarseTime {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    CoarseTime { secs: t.tv_sec, nanos: t.tv_nsec as u32 }
}
