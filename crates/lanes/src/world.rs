//! The three worlds behind one face: production, `loom` and `shuttle`.
//!
//! Everything else in this crate is written against the names re-exported here, so that what a
//! checker explores is the code that runs. The model worlds share one file, since both checkers
//! imitate `std`; production has a mutex of its own, and `parking_lot`'s lock for readers and writers.
//! None of them poisons.

#[cfg(all(loom, shuttle))]
compile_error!("choose one of --cfg loom and --cfg shuttle");

#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod production;

#[cfg(any(loom, shuttle))]
pub use model::*;
#[cfg(not(any(loom, shuttle)))]
pub use production::*;
