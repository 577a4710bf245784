//! Plans changes of extended attributes, using no locks, journal or I/O.
//!
//! Attributes are stored in the space after an inode's fields. Those that do not fit there are
//! stored in one block, which several inodes may share. [`plan_set`] decides where an attribute is
//! stored, in the kernel's order of preference. The caller holds the inode's operation lock, and
//! claims a block if the plan needs a new one. The caller does not change a block that other inodes
//! use too, but gives the inode a block of its own: see [`XattrPlan::shared_by`].

mod plan;
mod state;
#[cfg(test)]
mod tests;

pub use plan::{BlockChange, XattrPlan, plan_set};
pub use state::{Stored, ValueInode, XattrState, get, list, parse_name, seal, verify};
