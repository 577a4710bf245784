//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Measures file systems: Lanefs as a library, and any file system mounted on a directory.
//!
//! The same workload code runs on each [`TargetTree`]. Targets alternate in short slices within one
//! run, so that other load on the machine affects all of them alike. A result is the median over
//! the slices, together with the smallest and the largest value. A ratio of two targets is computed
//! slice by slice.
#![forbid(unsafe_code)]

pub mod command;
mod cpu;
mod efficiency;
mod error;
mod figures;
mod host;
mod html;
mod latency;
mod library;
mod machine;
mod mix;
pub mod older;
mod peers;
mod plan;
mod programs;
mod race;
pub mod raid;
mod record;
mod report;
mod run;
mod scale;
mod seeds;
mod statistics;
mod stop;
mod target;
mod target_tree;
mod threads;
mod tree;
mod worker;
mod workload;
mod workloads;

pub use cpu::Cpu;
pub use efficiency::{AIMS, Aim, efficiency_foot, efficiency_head, efficiency_line};
pub use error::{Error, Result};
pub use figures::{Count, Figures, Measured, Outcome};
pub use host::HostDirectory;
pub use html::html;
pub use lanefs_raid5::StripeWake;
pub use latency::Latencies;
pub use library::{Library, Mounting};
pub use machine::Machine;
pub use mix::Mix;
pub use peers::{Peers, enter_private_mounts};
pub use plan::Plan;
pub use record::{Chapter, Ending, Record, chapters};
pub use report::{json, table, table_foot, table_head};
pub use run::run;
pub use scale::Scale;
pub use seeds::{Seed, SeedPlan, alone, run_seed, seed_foot, seed_head, seed_lines};
pub use statistics::Summary;
pub use stop::Stop;
pub use target::{Server, Target, TargetSpec};
pub use target_tree::{How, Opened, TargetTree};
pub use tree::Tree;
pub use workload::Workload;
