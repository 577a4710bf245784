//! The facade: atomics, fences, `Arc` and threads of the chosen world.

pub use std::sync::{Arc, OnceLock, Weak};
/// Atomics and fences.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}
pub use std::thread;
