//! Gives access to the data of one inode through its mappings.

use crate::object::inode::Inode;
use crate::object::objects::Objects;
use lanefs_lanes::sync::Arc;

/// An inode, and the [`Objects`] of its mount, which include the inode's blocks.
///
/// `mapping.rs` reads and changes the mappings, `holes.rs` claims blocks for holes, `bytes.rs`
/// reads and writes through the mappings, `unmap.rs` removes mappings and frees their blocks,
/// `xattrs.rs` handles the extended attributes.
#[derive(Clone, Copy)]
pub(crate) struct FileData<'m> {
    pub(crate) objects: &'m Objects,
    pub(crate) inode: &'m Arc<Inode>,
}
