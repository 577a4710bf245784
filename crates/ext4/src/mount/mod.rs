//! Mounting and unmounting, the options of a mount, its statistics.

pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod statistics;
