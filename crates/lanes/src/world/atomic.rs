//! The atomics of each world.

#[cfg(loom)]
pub use loom::sync::atomic::*;
#[cfg(shuttle)]
pub use shuttle::sync::atomic::*;
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::*;
