//! Plans changes of metadata. The planners are pure: they get the present blocks and return the
//! blocks that replace them. They use no lock, journal or device themselves.

pub mod block_map;
pub mod cluster;
pub mod dir;
pub mod extent;
pub mod mapping;
pub mod xattr;
