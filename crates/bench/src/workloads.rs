//! What is measured.

pub(crate) mod data;
pub(crate) mod git;
pub(crate) mod listing;
pub(crate) mod names;
pub(crate) mod untar;
