//! Extended attributes in the inode and in a block.
//!
//! Both areas contain entries at the front and values at the back. In a block the entries follow a
//! header of 32 bytes, are sorted, and value offsets count from the start of the block. In the
//! inode they follow a magic number, in any order, and offsets count from the first entry. Source:
//! kernel documentation, *ext4: Extended Attributes*. Some facts are not documented there; they
//! were observed in data that the kernel writes and e2fsck accepts: the hashes; that entries in the
//! inode have a hash of 0; that kernels before 6.2 on machines with signed `char` hashed names with
//! signed bytes.

mod decode;
mod encode;
mod name;
mod seal;

pub use decode::{AttributeBlock, decode_block, decode_inode};
pub use encode::{encode_block, encode_inode, set_refcount};
pub use name::{AttributeName, NameError};
pub use seal::{seal, verify};

use crate::Ino;
use thiserror::Error;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number of both areas.
const MAGIC: u32 = 0xea02_0000;
/// Bytes of a block's header.
const HEADER: usize = 32;
/// Bytes of the inode area's header.
const INODE_HEADER: usize = 4;
/// Bytes of an entry before its name.
const ENTRY: usize = 16;
/// Bytes of zeros after the last entry.
const END: usize = 4;
/// The longest name, without its prefix, in bytes.
pub const MAX_NAME: usize = 255;
/// The most inodes that share a block.
pub const MAX_REFCOUNT: u32 = 1024;

/// `struct ext4_xattr_header`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    h_magic: U32,
    h_refcount: U32,
    h_blocks: U32,
    h_hash: U32,
    h_checksum: U32,
    h_reserved: [U32; 3],
}

/// `struct ext4_xattr_entry` without the name.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    e_name_len: u8,
    e_name_index: u8,
    e_value_offs: U16,
    e_value_inum: U32,
    e_value_size: U32,
    e_hash: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER);
const _: () = assert!(size_of::<RawEntry>() == ENTRY);

/// The possible faults of extended attributes. Offsets are bytes from the start of the area.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are the offset and the value found there
pub enum Cause {
    #[error("an area of {len} bytes")]
    Length { len: usize },
    #[error("magic {found:#010x}")]
    Magic { found: u32 },
    #[error("{found} blocks, not 1")]
    Blocks { found: u32 },
    #[error("reference count 0")]
    Unreferenced,
    #[error("checksum {found:#010x}, computed {computed:#010x}")]
    Checksum { found: u32, computed: u32 },
    #[error("the entries run over the end")]
    NoEnd,
    #[error("the name at {offset} contains NUL")]
    NameByte { offset: usize },
    #[error("the entry at {offset} has its {size} bytes of value at {value}, outside the area")]
    ValueRange { offset: usize, value: usize, size: usize },
    #[error("the entry at {offset} shares bytes of its value with another")]
    ValueOverlap { offset: usize },
    #[error("the entry at {offset} has hash {found:#010x}, computed {computed:#010x}")]
    Hash { offset: usize, found: u32, computed: u32 },
    #[error("the entry at {offset} is not behind the one before in the order of entries")]
    Order { offset: usize },
}

/// An attribute in an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The attribute's name.
    pub name: AttributeName<'a>,
    /// The attribute's value.
    pub value: Value<'a>,
}

/// The location of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// The value is in the same area.
    Here(&'a [u8]),
    /// The value is in a separate inode (feature `ea_inode`), which is not supported; kept
    /// unchanged.
    Inode {
        /// The inode number.
        ino: Ino,
        /// Bytes of the value.
        size: u32,
        /// The entry's hash, which cannot be computed without the value.
        hash: u32,
    },
}

/// Rounds a length up to a multiple of 4, as entries and values are padded.
fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Computes the hash of an entry: over the name's bytes, then the value's words, the last padded
/// with zeros.
fn entry_hash(name: &[u8], value: &[u8], widen: fn(u8) -> u32) -> u32 {
    let hash = name.iter().fold(0u32, |hash, &byte| hash.rotate_left(5) ^ widen(byte));
    value.chunks(4).fold(hash, |hash, bytes| {
        let mut word = [0; 4];
        for (place, byte) in word.iter_mut().zip(bytes) {
            *place = *byte;
        }
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

fn unsigned(byte: u8) -> u32 {
    u32::from(byte)
}

fn signed(byte: u8) -> u32 {
    byte as i8 as u32
}

#[cfg(test)]
mod tests;
