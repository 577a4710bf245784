//! No promise of stability: a part of Lanefs, for its other crates only.
//!
//! ext4: mount, groups, allocators, inodes, mappings, directories, extended attributes, orphans.
//!
//! [`Mount::open`] returns an [`Fs`], whose operations all take `&self` and run on any number of
//! threads. `docs/architecture.md` describes how an operation is built.
#![forbid(unsafe_code)]

mod alloc;
mod attr;
mod cache;
mod crypt;
mod data;
pub mod flags;
mod mount;
mod name;
mod object;
mod ops;
mod options;
mod quota;
mod verity;
mod volume;

/// The allocators' decisions, and what an implementation of them sees.
pub mod allocation {
    pub use crate::alloc::{Allocation, Attempt, Scaling, Summaries, Visit, Wait};
}

/// Finds and reads the log of a file system that is not mounted.
pub mod log {
    pub use crate::mount::find_log::{LogReplay, find, locate, overlay, plan};
    pub use crate::mount::log::{replace_fast_commits, replay};
}

pub use alloc::Privilege;
pub use alloc::work_for;
pub use attr::{
    Attr, CHANGEABLE_FLAGS, ExtentFlags, Fallocate, FileExtent, NewInode, NewKind, Rdev, Rename,
    Rights, Seek, SetAttr, SetTime, StatFs, SyncMode,
};
pub use attr::{DirId, Named, Names, NoNames};
pub use crypt::{BadKey, MasterKey};
pub use data::owners::LARGEST_QUOTA_FILE;
pub use lanefs_ondisk::UnfitJournal;
pub use lanefs_plan::dir::DirEntry;
pub use lanefs_plan::xattr::SetXattr;
pub use lanefs_plan::{CannotGrow, Error, Expected, Fault, InvalidArgument, MissingKey};
pub use lanefs_plan::{block_map, dir, extent, mapping, xattr};
pub use mount::find_log::{Primary, Wholeness, Witness};
pub use mount::mmp::Exclusive;
pub use mount::open::Mount;
pub use mount::open::read_descriptors;
pub use mount::statistics::Statistics;
pub use name::{Ascent, IsRing};
pub use object::fs::Fs;
pub use object::fs::names_within;
pub use object::inode::{Inode, InodeRef};
pub use ops::attributes::CAPABILITY;
pub use ops::attributes::QuotaReport;
pub use ops::link::Acted;
pub use ops::rename::Ends;
pub use options::{
    Access, Atime, FastCommitting, MountOptions, OnError, Purpose, Recovery, Synchronous,
};
pub use verity::{FileDigest, NewVerity};
