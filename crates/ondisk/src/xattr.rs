//! Extended attributes in the inode and in a block.
//!
//! Both areas contain entries at the front and values at the back. In a block the entries are
//! sorted and follow a header of 32 bytes, and the offsets of values count from the start of the
//! block. In the inode the entries are in any order and follow a magic number, and the offsets of
//! values count from the first entry. Source: kernel documentation, *ext4: Extended Attributes*.
//! Three facts are not documented there, and were observed in data that the kernel writes and
//! e2fsck accepts: how hashes are computed; that entries in the inode have a hash of 0, unless
//! their value is in an inode of its own; that kernels before 6.2 on machines with signed `char`
//! hashed names as signed bytes.

mod decode;
mod encode;
mod entry;
mod name;
mod seal;

pub use crate::cause::xattr::Cause;
pub use decode::{AttributeBlock, decode_block, decode_inode};
pub use encode::{encode_block, encode_inode, set_refcount, value_room};
pub use entry::{
    Attribute, ENTRY, MAX_REFCOUNT, MAX_VALUE, Value, entry_hashes, hash_with_value,
    is_hash_with_value,
};
pub use name::{AttributeName, MAX_NAME, NameError};
pub use seal::{seal, verify};

#[cfg(test)]
mod tests;
