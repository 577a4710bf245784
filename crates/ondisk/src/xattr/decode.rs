//! Decodes the attributes in an inode and in an attribute block.

use super::entry::{
    Attribute, END, ENTRY, HEADER, INODE_HEADER, MAGIC, MAX_VALUE, RawEntry, RawHeader, Value,
    entry_hash, padded, signed, unsigned,
};
use super::name::AttributeName;
use crate::cause::xattr::Cause;
use crate::types::Ino;
use zerocopy::FromBytes;

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

/// Decodes a block. Does not check the checksum, which [`super::verify`] does.
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
