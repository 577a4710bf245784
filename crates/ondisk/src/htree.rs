//! Index blocks of hashed directories.
//!
//! The first block of an indexed directory is the root. The root begins with "." and ".." as any
//! directory does; the record of ".." covers the rest of the block, which contains eight bytes of
//! information and the entries. Blocks of further levels look like one unused record. An entry has
//! the number of a child block in the directory, and the lowest hash in that child. The first entry
//! of a block has no hash of its own (limit and count are in the hash's place). The range of the
//! first entry begins at the hash that the parent's entry for the block has. Entries are sorted.
//! The low bit of an entry's hash is set if names with that hash are also in the previous block.
//! Source: kernel documentation, *ext4: Hash Tree Directories*.

mod checksum;
mod edit;
mod index;

pub use crate::cause::htree::Cause;
pub use checksum::{seal, verify};
pub use edit::{new_node, new_root, write_entries};
pub use index::{Index, IndexEntry, Kind, MAX_CHILD, Root, max_levels, node, root, shape};

#[cfg(test)]
mod tests;
