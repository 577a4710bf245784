//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! RAID-5 in Linux md's own format: a block device made of block devices. `docs/raid5.md` explains
//! rows, the write hole, the log, and what happens when a member fails.
//!
//! # How does one write run?
//!
//! Parity is kept, locked and logged in *blocks*: a block is 4 KiB at the same offset in every
//! chunk of a row. A write to a row is cut into *strips*. A strip is a range of blocks. In all of
//! these blocks, the same chunks are written in full and the same chunks in part. For each strip,
//! `rows/plan.rs` chooses the plan with the fewest reads. If all data of the strip is written,
//! nothing is read. Otherwise a plan reads either the data that is not written (*reconstruct*), or
//! the old data and parity (*modify*). If a crash left the parity in doubt, the plan is to
//! reconstruct. If a missing member has data that is not written, the plan is to modify. A write
//! takes these steps, on the calling thread (`write.rs`, `write/row.rs`):
//!
//! 1. Lock the row's blocks from the first strip to the last (`rows.rs`). If another thread holds
//!    them, wait. The holder may write this thread's part together with its own part (*gathering*),
//!    in which case nothing is left to do.
//! 2. Take a unit of the row budget (`base/resources.rs`).
//! 3. Mark the array active (`array.rs`) and set bits of the write-intent bitmap
//!    (`array/unsynced.rs`).
//!    If the array is active and the bits are set already, each of the two checks costs one load.
//! 4. Read the blocks that the plans need. If a member fails, the write is planned again. If writes
//!    that arrived meanwhile complete the strips, the write is planned again with their data.
//! 5. Compute parity, and log it durably if the array has a partial parity log (`log.rs`).
//! 6. Write data and parity. From here on nothing is read, so the write continues without a member
//!    that fails now.
//! 7. Before the write returns, record failed members on all other members.
//!
//! A read of a present member takes no lock. If the data has to be computed from the other members,
//! the read holds its blocks shared (`read.rs`). Threads in different rows share no cache line,
//! with one exception: if the array has a log and the parity of both rows is on one member, the
//! threads share that member's log, whose headers are written one after the other.
//!
//! # How do members come and go under I/O?
//!
//! The *standing* of a slot is one atomic word with the index of its device and the number of its
//! valid rows (`members.rs`). A rebuild locks a row, writes the member's chunk of the row, and
//! publishes the word before it releases the row. So while an operation holds a range of a row, a
//! member may be taken out or replaced by its copy, but no further member becomes valid in this
//! row. If a member is taken out during a read, the read is planned again; a write continues
//! without the member. A thread that changes a slot holds the lock of the array's state until the
//! change is made both in the superblocks and in memory. `upkeep/exchange.rs` replaces a member by
//! a copy of it.
#![forbid(unsafe_code)]

mod array;
mod assembly;
mod base;
mod log;
mod members;
mod read;
mod rows;
#[cfg(all(test, shuttle))]
mod tests;
mod upkeep;
mod write;

pub use array::ram::Unrecorded;
pub use array::setup::{
    ArrayOptions, Consistency, DirtyAndDegraded, MetadataStore, Policies, RecordError, Setup,
    Upkeep,
};
pub use array::{Array, Status};
pub use assembly::create::{CreateOptions, InitialParity, NewConsistency, create};
pub use assembly::error::{
    AssembleError, BadBitmapChunk, InvalidRequest, LeftOut, MemberFault, Outside,
};
pub use assembly::metadata::{KnownMember, Metadata};
pub use assembly::open::{OpenArray, Places};
pub use assembly::source::{MISSING, PREFIX, Source};
pub use assembly::{Assembly, Candidate};
pub use base::layout::{BLOCK, Geometry, GeometryError, Layout, Location, Slots};
pub use base::resources::StripeWake;
pub use base::{ArrayError, Statistics};
pub use lanefs_ondisk::md::{Area as LogArea, Uuid};
pub use log::recovery::LogOutcome;
pub use members::bad_blocks::BadBlocks;
pub use members::{Member, Standing};
pub use upkeep::CatchUp;
pub use upkeep::admission::{Added, NewMember};
pub use upkeep::changes::Replaced;
pub use upkeep::maintenance::{Ended, Progress, Rebuild, Scrub, ScrubReport};
