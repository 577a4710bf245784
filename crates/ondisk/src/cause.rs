//! The possible faults of each format, in one file per format.
//!
//! Each format re-exports its `Cause`, and [`crate::Corruption`] adds the object in which the cause
//! was found. The causes have files of their own, so that both the formats and
//! [`crate::Corruption`] can import them.

pub mod acl;
pub mod bitmap;
pub mod block_map;
pub mod dirent;
pub mod extent;
pub mod fast_commit;
pub mod group_desc;
pub mod htree;
pub mod inode;
pub mod jbd2;
pub mod mmp;
pub mod orphan;
pub mod quota;
pub mod superblock;
pub mod verity;
pub mod xattr;
