//! Encodes the attributes in an inode and in an attribute block.

use super::entry::{
    Attribute, END, ENTRY, HEADER, INODE_HEADER, MAGIC, RawEntry, RawHeader, Value, entry_hash,
    padded, unsigned,
};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// Creates a block that contains these attributes, sorted, for one inode. Returns `None` if they do
/// not fit. [`super::seal`] sets the checksum.
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
