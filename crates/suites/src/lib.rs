//! Suites that test whole file systems through the library interface of ext4.
//!
//! Each suite is a module here that can run for any time; `tests/` runs a fixed sample of each, and
//! the program `lanefs-suites` runs the long forms. `docs/testing.md` says what each suite checks.
#![forbid(unsafe_code)]

pub mod array;
pub mod both;
pub mod changes;
pub mod conditions;
pub mod crash;
pub mod cuts;
pub mod data;
pub mod faults;
pub mod fill;
pub mod fsx;
pub mod hostile;
pub mod image;
pub mod kernel;
pub mod large_dir;
pub mod library;
pub mod listing;
pub mod model;
pub mod op;
pub mod planted;
pub mod policies;
pub mod random;
pub mod sequence;
pub mod together;
