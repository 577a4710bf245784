//! RAID-5 in Linux md's own format: a block device made of block devices.
#![forbid(unsafe_code)]

mod activity;
mod array;
mod assemble_error;
mod assembly;
mod bad_blocks;
mod band;
mod budget;
mod candidate;
mod changes;
mod correct;
mod counters;
mod create;
mod error;
#[cfg(all(test, shuttle))]
mod exchange_model;
mod flush;
mod flusher;
mod gate;
mod intents;
mod keeper;
mod layout;
mod log_recovery;
mod log_waiters;
mod maintenance;
mod memory;
mod metadata;
mod open;
mod parity_log;
mod plan;
#[cfg(all(test, shuttle))]
mod planted;
mod read;
mod record;
mod rows;
mod scratch;
mod slots;
mod source;
mod standing;
mod unsynced;
mod write;

pub use array::{Array, Consistency, Policies, Setup, Status};
pub use assemble_error::AssembleError;
pub use assembly::{Assembly, LeftOut, Outside};
pub use budget::StripeWake;
pub use candidate::Candidate;
pub use changes::{Added, NewMember};
pub use counters::Statistics;
pub use create::{CreateOptions, InitialParity, NewConsistency, create};
pub use error::ArrayError;
pub use lanefs_ondisk::md::Uuid;
pub use layout::{BLOCK, Geometry, GeometryError, Layout, Place};
pub use log_recovery::LogOutcome;
pub use maintenance::{Ended, Progress, Rebuild, Scrub, ScrubReport};
pub use memory::Unrecorded;
pub use metadata::{KnownMember, Metadata};
pub use open::{ArrayOptions, DirtyAndDegraded, OpenArray, Upkeep};
pub use plan::{Band, Method, Missing, Plan, Trust, plan};
pub use record::Record;
pub use slots::Slots;
pub use source::{MISSING, PREFIX, Source};
pub use standing::{LogArea, Member, Standing};
