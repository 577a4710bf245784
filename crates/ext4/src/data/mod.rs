//! Handles file data (mappings, claims for holes, bytes) and extended attributes.

pub(crate) mod bytes;
pub(crate) mod holes;
pub(crate) mod mapping;
pub(crate) mod owners;
pub(crate) mod protected;
pub(crate) mod values;
pub(crate) mod xattrs;

use crate::object::fs::Fs;
use crate::object::inode::Inode;
use lanefs_lanes::sync::Arc;

// Gives access to the data of one inode through its mappings.

/// An inode, and the [`Fs`] of its mount, which include the inode's blocks.
///
/// `mapping.rs` reads and changes the mappings, and frees blocks with them; `holes.rs` claims
/// blocks for holes, `bytes.rs` reads and writes through the mappings, `xattrs.rs` handles the
/// extended attributes.
#[derive(Clone, Copy)]
pub(crate) struct FileData<'m> {
    pub(crate) fs: &'m Fs,
    pub(crate) inode: &'m Arc<Inode>,
}

impl Fs {
    pub(crate) fn data<'m>(&'m self, inode: &'m Arc<Inode>) -> FileData<'m> {
        FileData { fs: self, inode }
    }
}
