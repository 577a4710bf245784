//! Which blocks and inodes are free, and who gets them.
//!
//! | file | what it is |
//! |---|---|
//! | `runs` | searches for runs of clear bits |
//! | `group` | one group's state behind its guard: what is allocated, taken, born |
//! | `read` | from the blocks of the bitmaps to that state, checked |
//! | `summary` | what a chooser knows of groups without their locks: hints |
//! | `region` | where each lane is at home |
//! | `presence` | whether a group has its bitmaps in memory, and what keeps them there |
//! | `shared` | all groups' states and hints, which claims keep alive |
//! | `resident` | which groups have their bitmaps in memory, and which lose them again |
//! | `stripe` | what large runs are aligned to |
//! | `choose` | in which order groups are tried: pure |
//! | `space` | how many blocks may still be promised |
//! | `claim` | a run or an inode number that is promised to somebody |
//! | `groups`, `blocks`, `inodes`, `capture` | all of it together: what the rest of the crate uses |
//!
//! # Claimed is not allocated
//!
//! A group's `allocated` bits are what a commit writes. Its `taken` bits are those and the claims
//! and the blocks freed in transactions that are not durable yet. Free to claim is what is not
//! taken. A claim changes memory only; [`Groups::allocate`] inside a handle makes it real.
//!
//! # Locking
//!
//! Each group has one guard, `Rank::Guard`, held for a search or a change, never for I/O. Bitmaps
//! are read under a loader's lock, `Rank::Load`. Summaries and index are written under the guard
//! of the group they speak of, and read by anybody. A chooser skips a group whose guard is busy.

mod blocks;
mod capture;
mod choose;
mod claim;
mod group;
mod groups;
mod inodes;
mod presence;
mod read;
mod region;
mod resident;
mod runs;
mod shared;
mod space;
mod stripe;
mod summary;
#[cfg(test)]
mod tests;

pub(crate) use claim::{Claim, InodeClaim};
pub(crate) use group::GroupImage;
pub(crate) use groups::{Changes, Found, Groups, Request, Setup};
pub(crate) use inodes::Near;
pub(crate) use presence::GroupHold;
pub use space::Privilege;
pub(crate) use stripe::stripe_of;
