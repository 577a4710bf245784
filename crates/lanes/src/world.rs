//! The three worlds with one interface: production, `loom` and `shuttle`.
//!
//! The rest of this crate uses the names re-exported here, so that a checker (`loom` or `shuttle`)
//! explores the code that runs in production. The worlds of the two checkers share one file, since
//! both checkers imitate `std`. The production world has a mutex of this crate, and the
//! readers-writer lock of `parking_lot`. In all worlds, locks are not poisoned by a panic.

#[cfg(all(loom, shuttle))]
compile_error!("choose one of --cfg loom and --cfg shuttle");

pub(crate) mod atomic;
// Under a checker, `Mutex` is that checker's type. Loom's tests also compile the production type,
// since they check that type too.
#[cfg(any(all(loom, test), not(any(loom, shuttle))))]
mod futex;
#[cfg(any(all(loom, test), not(any(loom, shuttle))))]
mod lock_word;
#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod production;

#[cfg(any(loom, shuttle))]
pub use model::*;
#[cfg(not(any(loom, shuttle)))]
pub use production::*;
