//! The three worlds with one interface: production, `loom` and `shuttle`.
//!
//! The rest of this crate uses the names re-exported here, so that a checker explores the code that
//! runs in production. The model worlds share one file, since both checkers imitate `std`.
//! Production has its own mutex, and the readers-writer lock of `parking_lot`. No lock poisons.

#[cfg(all(loom, shuttle))]
compile_error!("choose one of --cfg loom and --cfg shuttle");

pub(crate) mod atomic;
// Under the checkers, `Mutex` is the type of the checker. Loom's tests also compile the production
// type, since they check it.
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
