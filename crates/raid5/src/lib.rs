//! RAID-5 in Linux md's own format: a block device made of block devices.
#![forbid(unsafe_code)]

mod activity;
mod array;
mod band;
mod budget;
mod counters;
mod error;
mod gate;
mod intents;
mod layout;
mod maintenance;
mod parity_log;
mod plan;
#[cfg(all(test, shuttle))]
mod planted;
mod read;
mod record;
mod rows;
mod scratch;
mod slots;
mod standing;
mod unsynced;
mod write;

pub use array::{Array, Consistency, Policies, Setup, Status};
pub use budget::StripeWake;
pub use counters::Statistics;
pub use error::ArrayError;
pub use layout::{BLOCK, Geometry, GeometryError, Layout, Place};
pub use maintenance::{Ended, Progress, Rebuild, Scrub, ScrubReport};
pub use plan::{Band, Method, Missing, Plan, Trust, plan};
pub use record::Record;
pub use slots::Slots;
pub use standing::{LogArea, Member, Standing};
