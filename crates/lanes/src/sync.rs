//! The facade: atomics, fences, `Arc` and threads of the chosen world.
//!
//! Code that a checker is to explore takes these names from here, and its locks from the root of
//! this crate. Code that it must not see takes them from [`unscheduled`]. No code takes them from
//! `std`: a test reads the sources of all crates for that (`tests/facade.rs`). Under `loom`,
//! atomics have no `const` constructor and `Arc` has no `Weak`.

pub use crate::world::Arc;
#[cfg(not(loom))]
pub use crate::world::Weak;
pub use crate::world::thread;
pub use unscheduled::OnceLock;

/// Atomics and fences.
pub mod atomic {
    pub use crate::world::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, fence,
    };
}

/// Primitives that no checker schedules: `std`'s own, in every world, without a rank.
///
/// No lock of the file system is one of these: a checker would never let another thread run there,
/// nor would the order of ranks be checked. They are for
/// - memory outside of the program: the bytes of a mapping that stands for a disk, which are no
///   atomics of any checker;
/// - counts and locks that outlive a schedule, or are not explored: how many schedules were run,
///   which lane a thread got, how often locks were contended, a disk of the tests;
/// - code below the facade: a program's heap, a tracer of memory accesses;
/// - tests and tools of ordinary threads.
pub mod unscheduled {
    pub use std::sync::{
        Barrier, Condvar, LazyLock, Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock,
        TryLockError, atomic, mpsc,
    };
}
