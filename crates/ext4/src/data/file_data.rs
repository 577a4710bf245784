//! The data of one inode: what its mappings lead to.

use crate::object::inode::Inode;
use crate::object::objects::Objects;
use lanefs_lanes::sync::Arc;

/// An inode, and the objects that its mappings and blocks are among.
///
/// `mapping.rs` reads and changes the mappings, `claim.rs` claims blocks for holes, `bytes.rs` reads and
/// writes through the mappings, `cut.rs` frees them, `xattrs.rs` has the attributes.
#[derive(Clone, Copy)]
pub(crate) struct FileData<'m> {
    pub(crate) objects: &'m Objects,
    pub(crate) inode: &'m Arc<Inode>,
}
