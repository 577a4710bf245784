//! Implements the operations: each file contains one operation, or two related ones.

pub(crate) mod attributes;
pub(crate) mod create;
pub(crate) mod fallocate;
pub(crate) mod grow;
pub(crate) mod link;
pub(crate) mod lookup;
mod protect;
pub(crate) mod rename;
pub(crate) mod truncate;
pub(crate) mod write;
