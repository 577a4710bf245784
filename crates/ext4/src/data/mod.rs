//! File data: mappings, preallocation windows, tail blocks.

pub(crate) mod map_slot;
pub(crate) mod mapping;
