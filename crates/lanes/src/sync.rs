//! The facade: atomics, fences, `Arc` and threads of the chosen world (production, loom or
//! shuttle).
//!
//! Code that the checkers explore takes these names from here, and its locks from the root of this
//! crate. Code that the checkers must not see takes these names from [`unscheduled`]. No code takes
//! them from `std`: a test searches the sources of all crates for that (`tests/facade.rs`). Under
//! `loom`, atomics have no `const` constructor and `Arc` has no `Weak`.

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

/// Primitives that no checker schedules: `std`'s own in every world, without a rank.
///
/// The file system uses none of these for its locks: a checker could not run another thread while
/// one waits for such a lock, and the lock order would not be checked. These primitives are for:
/// - memory outside of the program: the bytes of a mapping that represents a disk, which are not
///   atomics of a checker;
/// - counts and locks that outlive a schedule or are not explored: the number of schedules, the
///   lane of a thread, the contention of locks, a disk of the tests;
/// - code below the facade: a program's heap, a tracer of memory accesses;
/// - tests and tools with ordinary threads.
pub mod unscheduled {
    pub use std::sync::{
        Barrier, Condvar, LazyLock, Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock,
        TryLockError, atomic, mpsc,
    };
}
