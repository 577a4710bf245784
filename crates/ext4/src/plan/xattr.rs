//! Extended attributes: what to change, planned without locks, journal or I/O.
//!
//! Attributes live in the space behind an inode's fields and, what does not fit there, in one block
//! that inodes may share. [`plan_set`] decides where an attribute goes, in the kernel's order of
//! preference. The caller holds the inode's operation lock, claims a block where the plan needs a
//! new one, and copies a shared block on write: [`XattrPlan::shared_by`] tells.

mod plan;
mod state;
#[cfg(test)]
mod tests;

pub use plan::{BlockChange, XattrPlan, plan_set};
pub use state::{XattrState, get, list, parse_name, seal, verify};
