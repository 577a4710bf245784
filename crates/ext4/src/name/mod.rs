//! Implements directories and changes of names in them.

pub(crate) mod ascent;
pub(crate) mod directory;
mod encrypted;
pub(crate) mod entry_slot;
pub(crate) mod links;
pub(crate) mod locks;
