//! Tells the process that opened something from its children of fork(2).
//!
//! A child has a copy of the memory, but only one thread: that which called fork(2). So in the child
//! nobody runs what other threads had begun, and nobody releases their locks. Files stay shared with
//! the parent, which goes on using them.

use crate::sync::unscheduled::OnceLock;
use crate::sync::unscheduled::atomic::{AtomicU32, Ordering};

/// The number of calls of fork(2) from the first process to this one. It is on a cache line that
/// nothing else writes, since it is read by each operation.
#[repr(align(128))]
struct Forks(AtomicU32);

static FORKS: Forks = Forks(AtomicU32::new(0));
static COUNTED: OnceLock<()> = OnceLock::new();

extern "C" fn count_fork() {
    FORKS.0.fetch_add(1, Ordering::Relaxed);
}

/// A process that opened something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// Returns the process that calls.
    pub fn this() -> Process {
        COUNTED.get_or_init(|| {
            // SAFETY: the handler only changes an atomic, which is allowed in a child of a process
            // with several threads. If the C library has no memory for the handler, children are
            // not recognised, as if this file did not exist.
            unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        });
        Process(FORKS.0.load(Ordering::Relaxed))
    }

    /// Returns whether this process calls, and not a child of it.
    #[inline]
    pub fn is_this(self) -> bool {
        // Relaxed: a child's only thread has made the change itself.
        self.0 == FORKS.0.load(Ordering::Relaxed)
    }
}
