//! Counts the space and the inodes of users, groups and projects in the file system's quota files.
//!
//! Operations count nothing. For each inode that a transaction changes, the committer has two
//! records: one from before the transaction, and one from after it. In the same transaction, the
//! committer adds the difference to the usage of the inode's owners. So the quota files agree with
//! the inodes after every crash, and threads share no count.
//!
//! Operations only make sure that the owners have entries in the quota files. A new entry may need
//! blocks, which the committer cannot allocate ([`Ledger::promise`]).
//!
//! Limits are obeyed only if the options of the mount request it ([`limits`]). Then the threads
//! that work for an owner with limits share its counts.

mod counted;
mod fold;
mod ledger;
mod limits;
mod quotas;

pub(crate) use counted::{Counted, Owners, Wanted, entries, owners};
pub(crate) use fold::Fold;
pub(crate) use ledger::Ledger;
pub(crate) use limits::Held;
pub(crate) use quotas::{CREDITS, Quotas};
