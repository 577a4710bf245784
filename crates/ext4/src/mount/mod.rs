//! Mounting and unmounting, the options of a mount, its statistics.

mod log;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod primary;
pub(crate) mod statistics;
