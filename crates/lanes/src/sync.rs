//! The facade: atomics, fences, `Arc` and threads of the chosen world (production, loom or
//! shuttle).
//!
//! Code that the checkers explore takes these names from here, and its locks from the root of this
//! crate. Code that the checkers must not see takes these names from [`unscheduled`]. Except for
//! `Arc` and `Weak`, only this module and the worlds take them from `std` itself; a test searches
//! the sources of all crates for violations (`tests/facade.rs`). Under `loom`, atomics have no
//! `const` constructor and `Arc` has no `Weak`.

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

/// Primitives that no checker schedules. They are those of `std` in every world, and have no rank.
///
/// The file system uses none of these primitives for its locks. Otherwise the lock order would not
/// be checked, and a checker could not run another thread while one thread waits for a lock. These
/// primitives are for:
/// - memory outside of the program, such as the bytes of a mapping that represents a disk, because
///   this memory cannot consist of a checker's atomics;
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
