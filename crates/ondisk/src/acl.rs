//! POSIX access control lists, in the form of ext4's extended attribute and in the form of Linux's
//! system calls.
//!
//! Both forms consist of a version number and a list of entries. An entry has a tag, permissions
//! and, for a named user or group, an id. In the on-disk form (version 1) all other entries have no
//! id. In the form of the system calls (version 2) all other entries have an id without meaning.
//! The manual page acl(5) describes what the entries mean.

mod access;
mod codec;
mod list;
mod mode;

pub use crate::cause::acl::Cause;
pub use access::{Owner, Subject};
pub use list::{Acl, AclEntry, Permissions, Tag};
pub use mode::Inherited;

#[cfg(test)]
mod tests;
