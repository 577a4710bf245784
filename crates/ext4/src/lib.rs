//! ext4: mount, groups, allocators, inodes, mappings, directories, extended attributes, orphans, mkfs.
//!
//! [`Mount::open`] gives an [`Fs`], whose operations all take `&self` and run on any number of
//! threads. `docs/core.md` tells how an operation is built.
#![forbid(unsafe_code)]

#[allow(dead_code, unused_imports)] // the operations that use it come next
mod alloc;
mod attr;
mod block_reader;
pub mod dir;
mod error;
pub mod extent;
mod fs;
mod options;
pub mod xattr;

pub use alloc::{BusyGroup, InodeClaiming, Placement, Policies, StreamGoal};
pub use attr::{
    Attr, DirEntry, Fallocate, NewInode, NewKind, Rdev, Rename, Seek, SetAttr, SetTime, SetXattr,
    StatFs, SyncMode,
};
pub use error::Error;
pub use fs::{Fs, Inode, InodeRef, Mount};
pub use options::{Access, Atime, DirId, MountOptions, Named, Names, NoNames, OnError, Recovery};
