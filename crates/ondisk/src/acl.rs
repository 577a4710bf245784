//! POSIX access control lists, in the form of ext4's extended attribute and in the form of Linux's
//! system calls.
//!
//! Both forms are a version number and entries of tag, permissions and, for named users and groups,
//! an id. On disk (version 1) the other entries have no id; in the system's form (version 2) they
//! have an id without meaning. The meaning of the entries follows acl(5).

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
