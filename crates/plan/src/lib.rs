//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! Plans changes of ext4's metadata. The planners are pure: they get the present blocks and return
//! the blocks that replace them. They use no lock, journal or device themselves; what they read,
//! they read through traits of the caller ([`extent::Nodes`], [`dir::DirBlocks`]), so they share
//! its error type, [`Error`].
#![forbid(unsafe_code)]

pub mod block_map;
pub mod cluster;
pub mod dir;
mod error;
pub mod extent;
pub mod fast_commit;
pub mod mapping;
pub mod system;
pub mod xattr;

pub use error::{CannotGrow, Error, Expected, Fault, InvalidArgument, MissingKey, utc};
