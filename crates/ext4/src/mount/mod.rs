//! Mounting and unmounting, the options of a mount, its statistics.

pub(crate) mod find_log;
pub(crate) mod log;
pub(crate) mod mmp;
pub(crate) mod open;
pub(crate) mod statistics;
