//! Implements the operations: each file contains one operation, or two related ones.

mod allocate;
pub(crate) mod attributes;
pub(crate) mod create;
mod defragment;
pub(crate) mod delete;
mod encryption;
mod extents;
pub(crate) mod fallocate;
pub(crate) mod grow;
pub(crate) mod link;
pub(crate) mod lookup;
pub(crate) mod quota;
pub(crate) mod read;
pub(crate) mod rename;
mod shift;
pub(crate) mod symlink;
pub(crate) mod sync;
pub(crate) mod trim;
pub(crate) mod truncate;
mod verity;
pub(crate) mod write;
pub(crate) mod xattrs;
