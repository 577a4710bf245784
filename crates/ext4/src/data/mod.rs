//! File data: mappings, preallocation windows, tail blocks.

pub(crate) mod mapping;
