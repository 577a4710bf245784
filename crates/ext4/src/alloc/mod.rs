//! Allocates and frees blocks and inodes.
//!
//! | file | contents |
//! |---|---|
//! | `runs` | searches for runs of clear bits |
//! | `group` | one group's state behind its guard: allocated, taken and newly allocated bits |
//! | `read` | reads and checks the bitmaps' blocks |
//! | `summary` | hints about the groups, which a chooser reads without their locks |
//! | `caller`, `meetings` | the caller of an operation, and whether several work in one place |
//! | `region` | each caller's region, and the groups of new directories |
//! | `tally` | counts the work of searches |
//! | `work_place` | where new files of a directory and first blocks of a file are placed |
//! | `presence` | whether a group has its bitmaps in memory, and which operations need them there |
//! | `shared` | the states and hints of all groups, which claims keep alive |
//! | `resident` | which groups have their bitmaps in memory, and their eviction |
//! | `stripe` | the stripe that large runs are aligned to |
//! | `load` | reads the bitmaps of groups |
//! | `choose` | the order in which groups are tried, without I/O |
//! | `visit` | a search's visit to one group |
//! | `decisions` | the decisions that determine how long threads wait for each other |
//! | `space` | how many blocks may still be claimed |
//! | `claim` | a claimed run or inode number |
//! | `trim` | claims free blocks for a moment, so that they can be discarded |
//! | `growth` | the groups that are added to a file system in use |
//! | `groups`, `blocks`, `inodes`, `capture` | the operations that the rest of the crate calls |
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

mod blocks;
mod caller;
mod capture;
mod choose;
mod claim;
mod decisions;
mod group;
mod groups;
mod growth;
mod inodes;
mod load;
mod meetings;
mod presence;
mod read;
mod region;
mod resident;
mod runs;
mod shared;
mod space;
mod stripe;
mod summary;
mod tally;
#[cfg(test)]
mod tests;
mod trim;
mod visit;
mod work_place;

pub use caller::work_for;
pub use choose::{Attempt, Wait};
pub(crate) use claim::{Claim, InodeClaim};
pub use decisions::{Allocation, Scaling};
pub(crate) use group::GroupImage;
pub(crate) use groups::{Changes, Found, Groups, Request, Reuse, Setup};
pub(crate) use inodes::Parent;
pub(crate) use presence::GroupHold;
pub use space::Privilege;
pub(crate) use stripe::stripe_of;
pub use summary::Summaries;
pub use tally::AllocStatistics;
pub(crate) use tally::Count;
pub use visit::Visit;
pub(crate) use work_place::WorkPlace;
