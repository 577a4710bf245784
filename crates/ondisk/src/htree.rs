//! Index blocks of hashed directories.
//!
//! The first block of an indexed directory is the root. The root begins with "." and ".." as any
//! directory does; the record of ".." covers the rest of the block. This rest contains eight bytes
//! of information about the index, and then the entries of the index. The other index blocks are
//! called nodes; a node looks like a single unused record. An entry has the number of a child block
//! in the directory, and the lowest hash in that child. The entries are sorted by hash. The first
//! entry of a block stores no hash. In its place are the limit (the number of entries that fit into
//! the block) and the count (the number of entries in use). The lowest hash of a node's first child
//! is stored one level up, in the entry that refers to the node; for the root's first child it is
//! 0. The low bit of an entry's hash is set if names with that hash are also in the child of the
//! previous entry. Source: kernel documentation, *ext4: Hash Tree Directories*.

mod checksum;
mod edit;
mod index;

pub use crate::cause::htree::Cause;
pub use checksum::{seal, verify};
pub use edit::{new_node, new_root, write_entries};
pub use index::{Index, IndexEntry, Kind, MAX_CHILD, Root, max_levels, node, root, shape};

#[cfg(test)]
mod tests;
