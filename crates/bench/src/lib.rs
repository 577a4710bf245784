//! Measures file systems: Lanefs as a library, and whatever is mounted on a directory.
//!
//! The same workload code runs on each [`Place`]. Targets take turns in short slices within one
//! run, so that what else the machine does hits all of them alike; a result is the median of the
//! slices with the smallest and the largest, and a ratio is taken slice by slice.
#![forbid(unsafe_code)]

mod cpu;
mod error;
mod host;
mod library;
mod machine;
mod peers;
mod place;
mod report;
mod run;
mod statistics;
mod target;
mod tree;
mod workload;
mod workloads;

pub use error::{Error, Result};
pub use host::HostDirectory;
pub use library::Library;
pub use machine::Machine;
pub use peers::{Peers, enter_private_mounts};
pub use place::{How, Opened, Place};
pub use report::{json, table};
pub use run::{Measured, Outcome, Plan, run};
pub use statistics::Summary;
pub use target::{Server, Target, TargetSpec};
pub use tree::Tree;
pub use workload::{Scale, Workload};
