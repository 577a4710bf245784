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

pub use crate::cause::XattrCause as Cause;

use crate::checksum::Seed;
use crate::types::{Block, Ino};
use std::cmp::Ordering;
use thiserror::Error;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The longest name in bytes, its prefix included.
pub const MAX_NAME: usize = 255;

/// The prefixes that the kernel's ext4 supports, with their numbers. If the prefix is the whole
/// name, the rest is empty.
const PREFIXES: [(u8, &[u8]); 5] = [
    (AttributeName::USER, b"user."),
    (AttributeName::ACL_ACCESS, b"system.posix_acl_access"),
    (AttributeName::ACL_DEFAULT, b"system.posix_acl_default"),
    (AttributeName::TRUSTED, b"trusted."),
    (AttributeName::SECURITY, b"security."),
];

/// The name of an attribute. Any prefix number is valid, so that entries with unknown prefixes
/// survive when other attributes are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttributeName<'a> {
    /// The number of the prefix (`e_name_index`).
    pub index: u8,
    /// The part after the prefix: at most 255 bytes without NUL.
    pub rest: &'a [u8],
}

/// The reason why bytes are not a name. This is an error of the caller, never of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name has no prefix that the kernel's ext4 supports.
    #[error("the attribute's name has no known prefix")]
    Prefix,
    /// The rest after the prefix contains a NUL, is empty although it must not be, or is not empty
    /// although it must be.
    #[error("the attribute's name is not valid for its prefix")]
    Rest,
    /// The name has more than 255 bytes.
    #[error("the attribute's name is longer than 255 bytes")]
    TooLong,
}

impl<'a> AttributeName<'a> {
    /// `user.`
    pub const USER: u8 = 1;
    /// `system.posix_acl_access`; nothing follows this prefix.
    pub const ACL_ACCESS: u8 = 2;
    /// `system.posix_acl_default`; nothing follows this prefix.
    pub const ACL_DEFAULT: u8 = 3;
    /// `trusted.`
    pub const TRUSTED: u8 = 4;
    /// `security.`
    pub const SECURITY: u8 = 6;

    /// `system.`
    pub const SYSTEM: u8 = 7;
    /// The prefix of the encryption context, which has no text form.
    pub const ENCRYPTION: u8 = 9;

    /// Returns the name of the attribute that holds data of a file or directory in its inode
    /// (feature `inline_data`). Programs cannot name this attribute.
    pub const fn inline_data() -> AttributeName<'static> {
        AttributeName { index: AttributeName::SYSTEM, rest: b"data" }
    }

    /// Returns the name of the attribute that holds the encryption context. Programs cannot name
    /// this attribute.
    pub const fn encryption_context() -> AttributeName<'static> {
        AttributeName { index: AttributeName::ENCRYPTION, rest: b"c" }
    }

    /// Returns the name of the access ACL.
    pub const fn acl_access() -> AttributeName<'static> {
        AttributeName { index: AttributeName::ACL_ACCESS, rest: &[] }
    }

    /// Returns the name of the default ACL.
    pub const fn acl_default() -> AttributeName<'static> {
        AttributeName { index: AttributeName::ACL_DEFAULT, rest: &[] }
    }

    /// Splits a name in the form of getxattr(2) into its prefix and the rest.
    pub fn parse(full: &'a [u8]) -> Result<AttributeName<'a>, NameError> {
        if full.len() > MAX_NAME {
            return Err(NameError::TooLong);
        }
        for (index, prefix) in PREFIXES {
            let Some(rest) = full.strip_prefix(prefix) else { continue };
            let wants_rest = prefix.ends_with(b".");
            if rest.is_empty() == wants_rest || rest.contains(&0) {
                return Err(NameError::Rest);
            }
            return Ok(AttributeName { index, rest });
        }
        Err(NameError::Prefix)
    }

    /// Returns the name in the form of listxattr(2), without a NUL; `None` if the kernel's ext4
    /// does not support the prefix's number.
    pub fn full(&self) -> Option<Vec<u8>> {
        let (_, prefix) = PREFIXES.iter().find(|(index, _)| *index == self.index)?;
        Some([*prefix, self.rest].concat())
    }
}

/// Orders entries as in a block: by the number of the prefix, then the length of the rest, then the
/// bytes of the rest.
impl Ord for AttributeName<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |name: &AttributeName<'_>| (name.index, name.rest.len());
        key(self).cmp(&key(other)).then_with(|| self.rest.cmp(other.rest))
    }
}

impl PartialOrd for AttributeName<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// The headers, entries and hashes of both attribute areas: the area in the inode, and the
// attribute block.

/// The magic number of both areas.
const MAGIC: u32 = 0xea02_0000;
/// Bytes of a block's header.
const HEADER: usize = 32;
/// Bytes of the inode area's header.
const INODE_HEADER: usize = 4;
/// Bytes of an entry before its name.
pub const ENTRY: usize = 16;
/// Bytes of zeros after the last entry.
const END: usize = 4;
/// The largest number of inodes that can share a block.
pub const MAX_REFCOUNT: u32 = 1024;
/// The largest size in bytes of a value that is in an inode of its own.
pub const MAX_VALUE: u32 = 1 << 24;

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
fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Computes the hash of an entry over the bytes of the name, and then over the 32-bit words of the
/// value. The last word is padded with zeros.
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

/// Returns the hash of an entry whose value is in an inode of its own and has the hash `value`.
pub fn hash_with_value(name: AttributeName<'_>, value: u32) -> u32 {
    entry_hash(name.rest, &value.to_le_bytes(), unsigned)
}

/// Returns whether `found` is the hash of an entry whose value is in an inode of its own and has
/// the hash `value`. The bytes of the name may have been hashed as signed or as unsigned.
pub fn is_hash_with_value(name: AttributeName<'_>, value: u32, found: u32) -> bool {
    entry_hashes(name.rest, &value.to_le_bytes()).contains(&found)
}

/// Returns the two hashes that are valid for an entry, which stores one of them. There are two
/// because kernels before 6.2 on machines with signed `char` hashed names as signed bytes.
pub fn entry_hashes(name: &[u8], value: &[u8]) -> [u32; 2] {
    [entry_hash(name, value, unsigned), entry_hash(name, value, signed)]
}

fn unsigned(byte: u8) -> u32 {
    u32::from(byte)
}

fn signed(byte: u8) -> u32 {
    byte as i8 as u32
}

/// A checked block of attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeBlock<'a> {
    /// Number of inodes that share the block, at least 1.
    pub refcount: u32,
    /// The attributes, in the order of their names.
    pub attributes: Vec<Attribute<'a>>,
}

/// An area, with the properties that differ between the inode and a block.
struct Area<'a> {
    bytes: &'a [u8],
    /// The offset of the first entry.
    entries: usize,
    /// The position from which the offsets of values are counted.
    base: usize,
    checks_hashes: bool,
}

/// Decodes a block. Does not check the checksum, which [`verify`] does.
pub fn decode_block(block: &[u8]) -> Result<AttributeBlock<'_>, Cause> {
    let (header, _) =
        RawHeader::ref_from_prefix(block).map_err(|_| Cause::Length { len: block.len() })?;
    if header.h_magic.get() != MAGIC {
        return Err(Cause::Magic { found: header.h_magic.get() });
    }
    if header.h_blocks.get() != 1 {
        return Err(Cause::Blocks { found: header.h_blocks.get() });
    }
    let refcount = header.h_refcount.get();
    if refcount == 0 {
        return Err(Cause::Unreferenced);
    }
    let area = Area { bytes: block, entries: HEADER, base: 0, checks_hashes: true };
    let decoded = decode(&area)?;
    for pair in decoded.windows(2) {
        if let [(_, before), (offset, after)] = pair
            && before.name >= after.name
        {
            return Err(Cause::Order { offset: *offset });
        }
    }
    let attributes = decoded.into_iter().map(|(_, attribute)| attribute).collect();
    Ok(AttributeBlock { refcount, attributes })
}

/// Decodes the area of an inode, from the end of the inode's fields to the end of the inode. An
/// area without the magic number has no attributes.
pub fn decode_inode(area: &[u8]) -> Result<Vec<Attribute<'_>>, Cause> {
    let magic = area.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    if magic != Some(MAGIC) {
        return Ok(Vec::new());
    }
    let area =
        Area { bytes: area, entries: INODE_HEADER, base: INODE_HEADER, checks_hashes: false };
    Ok(decode(&area)?.into_iter().map(|(_, attribute)| attribute).collect())
}

/// Decodes the attributes, and returns them with the offsets of their entries.
fn decode<'a>(area: &Area<'a>) -> Result<Vec<(usize, Attribute<'a>)>, Cause> {
    let (raw, end) = entries(area)?;
    let mut decoded = Vec::with_capacity(raw.len());
    let mut ranges = Vec::new();
    for (offset, entry, rest) in raw {
        let name = AttributeName { index: entry.e_name_index, rest };
        let value = match entry.e_value_inum.get() {
            0 => Value::Here(value(area, end, offset, entry, &mut ranges)?),
            ino => {
                let (size, hash) = (entry.e_value_size.get(), entry.e_hash.get());
                if size > MAX_VALUE {
                    return Err(Cause::ValueSize { offset, size });
                }
                Value::Inode { ino: Ino(ino), size, hash }
            }
        };
        if let (true, Value::Here(value)) = (area.checks_hashes, value) {
            check_hash(offset, entry.e_hash.get(), rest, value)?;
        }
        decoded.push((offset, Attribute { name, value }));
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        if let [(_, end, _), (start, _, offset)] = pair
            && start < end
        {
            return Err(Cause::ValueOverlap { offset: *offset });
        }
    }
    Ok(decoded)
}

type Located<'a> = (usize, &'a RawEntry, &'a [u8]);

/// Returns the entries with their offsets and names, and the offset after the four zero bytes that
/// end the entries.
fn entries<'a>(area: &Area<'a>) -> Result<(Vec<Located<'a>>, usize), Cause> {
    let mut found = Vec::new();
    let mut at = area.entries;
    loop {
        let rest = area.bytes.get(at..).unwrap_or_default();
        let first = rest.first_chunk::<END>().ok_or(Cause::NoEnd)?;
        if *first == [0; END] {
            return Ok((found, at + END));
        }
        let (entry, names) = RawEntry::ref_from_prefix(rest).map_err(|_| Cause::NoEnd)?;
        let name = names.get(..usize::from(entry.e_name_len)).ok_or(Cause::NoEnd)?;
        if name.contains(&0) {
            return Err(Cause::NameByte { offset: at });
        }
        found.push((at, entry, name));
        at += padded(ENTRY + name.len());
    }
}

/// Returns the value of an entry, and adds the range of the value, padding included, to `ranges`.
fn value<'a>(
    area: &Area<'a>,
    entries_end: usize,
    offset: usize,
    entry: &RawEntry,
    ranges: &mut Vec<(usize, usize, usize)>,
) -> Result<&'a [u8], Cause> {
    let size = usize::try_from(entry.e_value_size.get()).unwrap_or(usize::MAX);
    if size == 0 {
        return Ok(&[]);
    }
    let start = area.base + usize::from(entry.e_value_offs.get());
    let out_of_range = Cause::ValueRange { offset, value: start, size };
    let left = area.bytes.len().saturating_sub(start);
    if start < entries_end || size > left || padded(size) > left {
        return Err(out_of_range);
    }
    ranges.push((start, start + padded(size), offset));
    area.bytes.get(start..start + size).ok_or(out_of_range)
}

/// Checks the hash of an entry. A hash of 0 means that no hash was computed. In some existing
/// images, hashes were computed from the name's bytes as signed numbers; in others, as unsigned
/// numbers. Both hashes are accepted.
fn check_hash(offset: usize, found: u32, name: &[u8], value: &[u8]) -> Result<(), Cause> {
    let computed = entry_hash(name, value, unsigned);
    if found == 0 || found == computed || found == entry_hash(name, value, signed) {
        return Ok(());
    }
    Err(Cause::Hash { offset, found, computed })
}

/// Creates a block that contains these attributes, sorted, for one inode. Returns `None` if they do
/// not fit. [`seal`] sets the checksum.
pub fn encode_block(block_size: usize, attributes: &[Attribute<'_>]) -> Option<Vec<u8>> {
    let mut sorted = attributes.to_vec();
    sorted.sort_by_key(|attribute| attribute.name);
    let mut block = vec![0; block_size];
    let hashes = encode(&mut block, HEADER, 0, &sorted, block_hash)?;
    // If an entry has no hash, the block's hash is 0, so that the kernel does not share the block.
    let hash = match hashes.contains(&0) {
        true => 0,
        false => hashes.iter().fold(0u32, |hash, entry| hash.rotate_left(16) ^ entry),
    };
    let header = RawHeader {
        h_magic: U32::new(MAGIC),
        h_refcount: U32::new(1),
        h_blocks: U32::new(1),
        h_hash: U32::new(hash),
        h_checksum: U32::ZERO,
        h_reserved: [U32::ZERO; 3],
    };
    block.get_mut(..HEADER)?.copy_from_slice(header.as_bytes());
    Some(block)
}

/// Creates an inode's area of `len` bytes with these attributes. Without attributes the area is all
/// zeros. Returns `None` if the attributes do not fit.
pub fn encode_inode(len: usize, attributes: &[Attribute<'_>]) -> Option<Vec<u8>> {
    let mut area = vec![0; len];
    if attributes.is_empty() {
        return Some(area);
    }
    encode(&mut area, INODE_HEADER, INODE_HEADER, attributes, |attribute| match attribute.value {
        Value::Here(_) => 0,
        Value::Inode { hash, .. } => hash,
    })?;
    area.get_mut(..INODE_HEADER)?.copy_from_slice(&MAGIC.to_le_bytes());
    Some(area)
}

/// Returns the number of bytes that a value takes at the back of an area.
pub fn value_room(value: &Value<'_>) -> usize {
    match value {
        Value::Here(value) => padded(value.len()),
        Value::Inode { .. } => 0,
    }
}

/// Sets the number of inodes that share a block.
pub fn set_refcount(block: &mut [u8], refcount: u32) {
    if let Some(field) = block.get_mut(4..8) {
        field.copy_from_slice(&refcount.to_le_bytes());
    }
}

fn block_hash(attribute: &Attribute<'_>) -> u32 {
    match attribute.value {
        Value::Here(value) => entry_hash(attribute.name.rest, value, unsigned),
        Value::Inode { hash, .. } => hash,
    }
}

/// Writes the entries from offset `entries` on and the values from the end of the area backwards.
/// Returns the entries' hashes.
fn encode(
    area: &mut [u8],
    entries: usize,
    base: usize,
    attributes: &[Attribute<'_>],
    hash_of: fn(&Attribute<'_>) -> u32,
) -> Option<Vec<u32>> {
    let mut hashes = Vec::with_capacity(attributes.len());
    let mut at = entries;
    let mut values = area.len();
    for attribute in attributes {
        let next = at + padded(ENTRY + attribute.name.rest.len());
        let (value, ino, size) = match attribute.value {
            Value::Here(value) => (value, 0, u32::try_from(value.len()).ok()?),
            Value::Inode { ino, size, .. } => (&[][..], ino.0, size),
        };
        values = values.checked_sub(padded(value.len()))?;
        if next + END > values {
            return None;
        }
        let hash = hash_of(attribute);
        let entry = RawEntry {
            e_name_len: u8::try_from(attribute.name.rest.len()).ok()?,
            e_name_index: attribute.name.index,
            e_value_offs: U16::new(if value.is_empty() {
                0
            } else {
                u16::try_from(values - base).ok()?
            }),
            e_value_inum: U32::new(ino),
            e_value_size: U32::new(size),
            e_hash: U32::new(hash),
        };
        area.get_mut(at..at + ENTRY)?.copy_from_slice(entry.as_bytes());
        area.get_mut(at + ENTRY..at + ENTRY + attribute.name.rest.len())?
            .copy_from_slice(attribute.name.rest);
        area.get_mut(values..values + value.len())?.copy_from_slice(value);
        hashes.push(hash);
        at = next;
    }
    Some(hashes)
}

// The checksum of a block of attributes. The checksum covers the block's number but no inode
// number, since several inodes may share the block.

/// The offset of `h_checksum`.
const CHECKSUM: usize = 16;

/// Sets the checksum; `seed` is the seed of the file system.
pub fn seal(seed: Seed, place: Block, block: &mut [u8]) {
    let checksum = compute(seed, place, block);
    if let Some(field) = block.get_mut(CHECKSUM..CHECKSUM + 4) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Checks the checksum of a block that was read from block `place`.
pub fn verify(seed: Seed, place: Block, block: &[u8]) -> Result<(), Cause> {
    if block.len() < HEADER {
        return Err(Cause::Length { len: block.len() });
    }
    let stored = block.get(CHECKSUM..).and_then(|rest| rest.first_chunk()).copied();
    let found = u32::from_le_bytes(stored.unwrap_or_default());
    let computed = compute(seed, place, block);
    if found != computed {
        return Err(Cause::Checksum { found, computed });
    }
    Ok(())
}

fn compute(seed: Seed, place: Block, block: &[u8]) -> u32 {
    seed.chain_u64(place.0)
        .chain(block.get(..CHECKSUM).unwrap_or_default())
        .chain_u32(0)
        .chain(block.get(CHECKSUM + 4..).unwrap_or_default())
        .value()
}

#[cfg(test)]
mod tests;
