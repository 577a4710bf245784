//! What never changes after the mount: where things lie, and how blocks are read.

pub(crate) mod reader;
pub(crate) mod system;
