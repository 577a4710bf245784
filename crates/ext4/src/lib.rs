//! ext4: mount, groups, allocators, inodes, mappings, directories, extended attributes, orphans, mkfs.
//!
//! [`Mount::open`] gives an [`Fs`], whose operations all take `&self` and run on any number of
//! threads. `docs/core.md` tells how an operation is built.
#![forbid(unsafe_code)]

mod alloc;
mod attr;
mod attributes;
mod block_reader;
mod commit;
mod create;
mod crowd;
pub mod dir;
mod directory;
mod error;
pub mod extent;
mod fallocate;
mod fs;
mod glance;
mod home;
mod inode;
mod inodes;
mod links;
mod mapping;
mod meta;
pub mod mkfs;
mod mount;
mod one_lock;
mod options;
mod orphan;
mod place;
mod places;
mod plant;
mod pressure;
mod read;
mod record;
mod rename;
mod roll;
mod statistics;
mod superblock;
mod symlink;
mod sync;
mod table;
mod truncate;
mod write;
pub mod xattr;
mod xattrs;

pub use alloc::{
    BusyGroup, GroupSearch, InodeClaiming, NameCachePolicy, Overwrite, Placement, Policies,
    Privilege, StreamGoal, UnknownPolicy,
};
pub use attr::{
    Attr, DirEntry, Fallocate, NewInode, NewKind, Rdev, Rename, Rights, Seek, SetAttr, SetTime,
    SetXattr, StatFs, SyncMode,
};
pub use error::Error;
pub use fs::Fs;
pub use inode::{Inode, InodeRef};
pub use links::Acted;
pub use mount::Mount;
pub use one_lock::OneLockCache;
pub use options::{Access, Atime, DirId, MountOptions, Named, Names, NoNames, OnError, Recovery};
pub use pressure::names_within;
pub use rename::Ends;
pub use roll::OnRoll;
pub use statistics::Statistics;
