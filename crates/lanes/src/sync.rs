//! The facade: atomics, fences, `Arc` and threads of the chosen world.
//!
//! Code that is to be model-checked takes these names from here and nothing of the kind from
//! `std`. Under `loom`, atomics have no `const` constructor and `Arc` has no `Weak`.

pub use crate::world::Arc;
#[cfg(not(loom))]
pub use crate::world::Weak;
pub use crate::world::thread;
pub use std::sync::OnceLock;

/// Atomics and fences.
pub mod atomic {
    pub use crate::world::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, fence,
    };
}
