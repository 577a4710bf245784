//! Walks over every file of a tree, in an image or on the host.
//!
//! The walk uses an explicit stack, since a recursive walk of a deep tree could overflow the
//! thread's stack. It uses inodes instead of paths, since a path may be longer than path resolution
//! accepts. It needs memory for one open directory at each level, and one bit for each directory.

mod each;
mod walker;

pub use each::{Depth, each_file};
pub use walker::{Entry, Order, Visit, Walk, is_spare_lost_and_found};
