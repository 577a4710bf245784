//! Formats, which are option sets of mke2fs. Every suite for whole file systems can run on each of
//! them.
//!
//! The program `lanefs-formats` runs all suites on all formats and prints a table of the results.
//! The tests run samples.

pub(crate) mod debugfs;
mod exchange;
mod format;
mod sets;

pub use exchange::{
    Kernel, both_ways, run_on_kernel, run_on_library, seen_by_kernel, seen_by_library,
};
pub use format::Format;
pub use sets::{BLOCK_MAPS, EXTENTS, all};
