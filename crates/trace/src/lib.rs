//! Which cache lines do operations share?
//!
//! [`record`] single-steps a closure on the calling thread, with no special build: the processor's
//! trap flag stops after each instruction, a signal handler notes the registers, and afterwards a
//! decoder tells from them which memory each instruction read and wrote. [`Footprint`] is the cache
//! lines that one run touched, with the calls that led there; [`Conflict`]s are the lines that one
//! footprint writes and another touches; [`Bus`] counts what a coherent machine would transfer when
//! many threads do one operation after the other.
//!
//! What it sees is what the processor executed: locks, reference counts, the allocator, thread
//! locals. What it does not see is the kernel: system calls are counted, not followed.
//!
//! Only for Linux on x86-64; elsewhere [`record`] says so.
#![warn(missing_docs)]

mod access;
mod bus;
mod conflict;
mod crew;
mod footprint;
mod memory;
mod record;
mod symbols;

pub use bus::{Bus, Transfers};
pub use conflict::{Conflict, conflicts};
pub use crew::Crew;
pub use footprint::{Footprint, Granule, Line, Site, Touch};
pub use memory::Memory;
pub use record::{Recorder, Unsupported, is_supported, record};
pub use symbols::{Frame, Symbols};
