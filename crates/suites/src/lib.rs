//! Suites that judge the whole file system through its library interface.
//!
//! Each suite is a module here, with what it needs to be run for as long as wanted; `tests/` runs
//! a fixed sample of each, and the program `lanefs-suites` the long forms. `docs/suites.md` tells
//! what each suite asks and how its own blindness is ruled out.
#![forbid(unsafe_code)]

pub mod array;
pub mod conditions;
pub mod crash;
pub mod faults;
pub mod fill;
pub mod fsx;
pub mod hostile;
pub mod image;
pub mod kernel;
pub mod library;
pub mod listing;
pub mod model;
pub mod planted;
pub mod policies;
pub mod random;
pub mod step;
pub mod story;
pub mod together;
