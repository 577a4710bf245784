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
//! | `visit` | the attempt of a search in one group |
//! | `decisions`, `older` | the decisions that older kernels make differently, and the older ways |
//! | `space` | how many blocks may still be claimed |
//! | `claim` | a claimed run or inode number |
//! | `trim` | free blocks that are claimed to be discarded |
//! | `growth` | the groups that are added to a file system in use |
//! | `groups`, `blocks`, `inodes`, `capture` | the operations that the rest of the crate calls |
//!
//! # Claimed is not allocated
//!
//! A group's `allocated` bits are those that a commit writes. Its `taken` bits are the allocated
//! ones, the claims, and the blocks freed in transactions that are not durable yet. A bit can be
//! claimed if it is not taken. A claim changes memory only; [`Groups::allocate`] inside a handle
//! sets the allocated bits.
//!
//! # Locking
//!
//! Each group has one guard, `Rank::Guard`, held for a search or a change, never for I/O. Bitmaps
//! are read under a loader's lock, `Rank::Load`. Summaries and index are written under the guard of
//! their group, and read without a lock. A chooser skips a group whose guard is held.

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
mod older;
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
pub(crate) use claim::{Claim, InodeClaim};
pub(crate) use group::GroupImage;
pub(crate) use groups::{Changes, Found, Groups, Request, Setup};
pub(crate) use inodes::Parent;
pub(crate) use presence::GroupHold;
pub use space::Privilege;
pub(crate) use stripe::stripe_of;
pub use tally::AllocStatistics;
pub(crate) use tally::Count;
pub(crate) use work_place::WorkPlace;
