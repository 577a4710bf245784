//! Mounting and unmounting, the options of a mount, its statistics.

mod access;
pub(crate) mod find_log;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod mmp;
pub(crate) mod open;
pub(crate) mod options;
mod orphans;
pub(crate) mod primary;
mod quotas;
pub(crate) mod statistics;
