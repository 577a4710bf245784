//! Pure planners: from the blocks that are there to the blocks that replace them. No lock, no
//! journal, no device.

pub mod dir;
pub mod extent;
pub mod xattr;
