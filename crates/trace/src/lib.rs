//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Finds cache lines that operations share.
//!
//! [`record`] single-steps a closure on the calling thread, with no special build. The processor's
//! trap flag stops the thread after each instruction, and a signal handler saves the registers.
//! Afterwards a decoder computes from the registers which memory each instruction read and wrote. A
//! [`Footprint`] has the cache lines that one run touched, each line with the call paths of its
//! accesses. [`Conflict`]s are the lines that one footprint writes and another touches. [`Bus`]
//! counts the lines that a coherent machine would transfer if many threads ran one operation after
//! the other.
//!
//! The trace contains all instructions that the processor executes in user space: locks, reference
//! counts, the allocator, thread locals. It contains no instructions of the kernel; system calls
//! are only counted.
//!
//! Works on Linux on x86-64 only; elsewhere [`record`] returns an error.
#![warn(missing_docs)]

mod access;
mod bus;
mod conflict;
mod footprint;
mod memory;
mod record;
mod registers;
mod symbols;
mod workers;

pub use bus::{Bus, Transfers};
pub use conflict::{Conflict, conflicts};
pub use footprint::{Footprint, Granule, Line, Site, Touch};
pub use memory::Memory;
pub use record::{Recorder, Unsupported, is_supported, record};
pub use symbols::{Frame, Symbols};
pub use workers::Workers;
