//! The crash suite runs a workload on a recording device. Every crash state that the recording
//! allows must contain every promised change, and no change that the workload did not make.
//!
//! One thread runs the workload, so the tree after a crash must be the tree after *some* operation
//! between the last promised one and the last one that had started. Each word of data encodes the
//! file, the operation and the position for which it was written (see [`words`]).

mod check;
pub mod checker;
mod contents;
pub(crate) mod digest;
mod history;
mod mmp;
mod recorder;
pub mod states;
mod tally;
mod volume;
mod words;
pub mod workload;

pub use check::{Cuts, check, check_on};
pub use checker::{Checker, Ways};
pub use history::History;
pub use tally::{Findings, Tally};
pub use volume::many;
pub use words::{words, writer};
pub use workload::{OPTIONS, record};
