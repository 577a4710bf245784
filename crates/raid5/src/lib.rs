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
mod exchange;
#[cfg(all(test, shuttle))]
mod exchange_model;
mod flush;
mod flusher;
mod gate;
mod held_log;
mod intent_bits;
mod intents;
mod keeper;
mod layout;
mod left_out;
mod loads;
#[cfg(all(test, shuttle))]
mod log_model;
mod log_recovery;
mod log_waiters;
mod logging;
mod lost;
mod maintenance;
mod member_check;
mod membership;
mod metadata;
mod metadata_store;
#[cfg(all(test, shuttle))]
mod model_member;
mod open;
mod parity_log;
mod plan;
mod ram_array;
mod read;
mod row_write;
mod rows;
#[cfg(all(test, shuttle))]
mod schedules;
mod scratch;
mod setup;
mod slots;
mod source;
mod standing;
mod unsynced;
mod write;

pub use array::{Array, Status};
pub use assemble_error::AssembleError;
pub use assembly::Assembly;
pub use budget::StripeWake;
pub use candidate::Candidate;
pub use changes::{Added, NewMember, Replaced};
pub use counters::Statistics;
pub use create::{CreateOptions, InitialParity, NewConsistency, create};
pub use error::ArrayError;
pub use lanefs_ondisk::md::Uuid;
pub use layout::{BLOCK, Geometry, GeometryError, Layout, Location};
pub use left_out::{LeftOut, Outside};
pub use log_recovery::LogOutcome;
pub use maintenance::{Ended, Progress, Rebuild, Scrub, ScrubReport};
pub use metadata::{KnownMember, Metadata};
pub use metadata_store::MetadataStore;
pub use open::{ArrayOptions, DirtyAndDegraded, OpenArray, Upkeep};
pub use plan::{Band, Method, Missing, Plan, Trust, plan};
pub use ram_array::Unrecorded;
pub use setup::{Consistency, Policies, Setup};
pub use slots::Slots;
pub use source::{MISSING, PREFIX, Source};
pub use standing::{LogArea, Member, Standing};
