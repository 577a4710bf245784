//! The headers, entries and hashes of both attribute areas: the area in the inode, and the
//! attribute block.

use super::name::AttributeName;
use crate::types::Ino;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number of both areas.
pub(super) const MAGIC: u32 = 0xea02_0000;
/// Bytes of a block's header.
pub(super) const HEADER: usize = 32;
/// Bytes of the inode area's header.
pub(super) const INODE_HEADER: usize = 4;
/// Bytes of an entry before its name.
pub const ENTRY: usize = 16;
/// Bytes of zeros after the last entry.
pub(super) const END: usize = 4;
/// The largest number of inodes that can share a block.
pub const MAX_REFCOUNT: u32 = 1024;
/// The largest size in bytes of a value that is in an inode of its own.
pub const MAX_VALUE: u32 = 1 << 24;

/// `struct ext4_xattr_header`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawHeader {
    pub(super) h_magic: U32,
    pub(super) h_refcount: U32,
    pub(super) h_blocks: U32,
    pub(super) h_hash: U32,
    pub(super) h_checksum: U32,
    pub(super) h_reserved: [U32; 3],
}

/// `struct ext4_xattr_entry` without the name.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawEntry {
    pub(super) e_name_len: u8,
    pub(super) e_name_index: u8,
    pub(super) e_value_offs: U16,
    pub(super) e_value_inum: U32,
    pub(super) e_value_size: U32,
    pub(super) e_hash: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER);
const _: () = assert!(size_of::<RawEntry>() == ENTRY);

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
    /// The value is in an inode of its own (feature `ea_inode`).
    Inode {
        /// The inode number.
        ino: Ino,
        /// Bytes of the value.
        size: u32,
        /// The entry's hash, computed from its name and the hash of the value.
        hash: u32,
    },
}

/// Rounds a length up to a multiple of 4, to which entries and values are padded.
pub(super) fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Computes the hash of an entry over the bytes of the name, and then over the 32-bit words of the
/// value. The last word is padded with zeros.
pub(super) fn entry_hash(name: &[u8], value: &[u8], widen: fn(u8) -> u32) -> u32 {
    let hash = name.iter().fold(0u32, |hash, &byte| hash.rotate_left(5) ^ widen(byte));
    value.chunks(4).fold(hash, |hash, bytes| {
        let mut word = [0; 4];
        for (place, byte) in word.iter_mut().zip(bytes) {
            *place = *byte;
        }
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// Returns the hash of an entry whose value is in an inode of its own and has the hash `value`.
pub fn hash_with_value(name: AttributeName<'_>, value: u32) -> u32 {
    entry_hash(name.rest, &value.to_le_bytes(), unsigned)
}

/// Returns whether `found` is the hash of an entry whose value is in an inode of its own and has
/// the hash `value`. The bytes of the name may have been hashed as signed or as unsigned.
pub fn is_hash_with_value(name: AttributeName<'_>, value: u32, found: u32) -> bool {
    let value = value.to_le_bytes();
    found == entry_hash(name.rest, &value, unsigned)
        || found == entry_hash(name.rest, &value, signed)
}

/// Returns the two hashes that are valid for an entry, which stores one of them. There are two
/// because kernels before 6.2 on machines with signed `char` hashed names as signed bytes.
pub fn entry_hashes(name: &[u8], value: &[u8]) -> [u32; 2] {
    [entry_hash(name, value, unsigned), entry_hash(name, value, signed)]
}

pub(super) fn unsigned(byte: u8) -> u32 {
    u32::from(byte)
}

pub(super) fn signed(byte: u8) -> u32 {
    byte as i8 as u32
}
