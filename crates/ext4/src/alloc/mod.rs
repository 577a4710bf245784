//! Allocates and frees blocks and inodes.
//!
//! | file | contents |
//! |---|---|
//! | `runs` | searches for runs of clear bits |
//! | `group` | one group's state behind its guard: allocated, taken and newly allocated bits |
//! | `summary` | hints about the groups, which a chooser reads without their locks |
//! | `regions` | callers, each one's region, and where new directories and files are placed |
//! | `choose` | the order in which groups are tried, without I/O; the stripe of large runs |
//! | `bitmaps` | which groups have their bitmaps in memory; reading and evicting them |
//! | `space` | how many blocks may still be claimed; counts of the work of searches |
//! | `groups` | all groups; a search's visit to one; claimed runs and inode numbers |
//! | `blocks` | what the rest of the crate calls: claim, allocate, free, trim, grow, capture |
//!
//! # Claimed is not allocated
//!
//! Blocks and inode numbers are claimed in memory first. They become allocated in a handle, after
//! the data was written. So a group has two bitmaps for blocks, and two for inodes. Its `allocated`
//! bits are those that a commit writes. Its `taken` bits are the allocated ones, the claims, and
//! the blocks freed in transactions that are not durable yet, because a crash would undo the
//! freeing. A bit can be claimed if it is not taken. Blocks that the running transaction itself
//! allocated (`born`) can be claimed as soon as they are freed. A wrong bitmap makes its group
//! unusable.
//!
//! # Where are new files placed?
//!
//! - A directory in the root, or in a directory with the flag `T` of chattr(1), is placed far from
//!   its siblings. Its group is computed from its number among the subdirectories, which is the
//!   parent's link count. (In a contended parent, whose link count is out of date, each lane counts
//!   its directories separately.) If that group has had a directory since the mount, the groups
//!   soon after it are tried, and the directory is placed in the first of them that has room and
//!   has had no directory. If none is found, the directory stays in the computed group.
//! - Other directories are placed in the groups after their parent's group, each in the next group.
//!   So siblings are near each other but in different groups, whereas the kernel's ext4 puts an
//!   unpacked tree into one group.
//! - A file's inode is placed in its directory's group, and the file's first block in the inode's
//!   group. Preallocation windows are as large as the file, up to 8 MiB.
//! - The *caller* is the thread, or on a mount the client whose request is served. Each caller has
//!   a region of groups, which keeps callers with different directories apart (`docs/scaling.md`).
//!   If the group of a search's goal is busy, the search continues in the caller's region, because
//!   in the next group it would meet all other threads that skip the same group.
//! - On a RAID, a run of at least the length of a row begins at a row boundary, if such a run is
//!   free and the run does not continue a file. So the array writes whole rows.
//!
//! # When is there no space?
//!
//! A claim first draws its number of blocks from `space::Space`. The drawn blocks certainly exist,
//! so the claim searches for them up to 8 times. A claim that can draw no blocks waits until no
//! other claim runs, and takes back all preallocation windows. If blocks were freed in a
//! transaction that is not durable yet, the claim waits for that commit and tries again, up to
//! three times.
//!
//! # Locking
//!
//! Each group has one guard, `Rank::Guard`. It is held for a search or a change, never for I/O.
//! Bitmaps are read under a loader's lock, `Rank::Load`. A group's entries in the summaries and the
//! index are written under the group's guard, and read without a lock. A search skips a group whose
//! guard is held, except in its last pass.

mod bitmaps;
mod blocks;
mod choose;
mod group;
mod groups;
mod regions;
mod runs;
mod space;
mod summary;

pub(crate) use crate::alloc::bitmaps::GroupHold;
pub(crate) use crate::alloc::blocks::Parent;
pub(crate) use crate::alloc::choose::stripe_of;
pub use crate::alloc::choose::{Attempt, Wait};
pub(crate) use crate::alloc::group::GroupImage;
pub use crate::alloc::groups::{Allocation, Scaling, Visit};
pub(crate) use crate::alloc::groups::{
    Changes, Claim, Found, Groups, InodeClaim, Request, Reuse, Setup,
};
pub(crate) use crate::alloc::regions::WorkPlace;
pub use crate::alloc::regions::work_for;
pub(crate) use crate::alloc::space::Count;
pub use crate::alloc::space::Privilege;
pub use crate::alloc::summary::Summaries;

#[cfg(test)]
mod tests;
