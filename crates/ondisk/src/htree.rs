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

pub use crate::cause::HtreeCause as Cause;

use crate::checksum::Seed;
use crate::dirent;
use crate::dirent::DirFormat;
use crate::hash::HashVersion;
use crate::types::{FileBlock, Ino};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The offset of the index information in a root, after the headers and names of the two records.
const ROOT_INFO: usize = 24;
/// The offset of the entries in a root.
const ROOT_ENTRIES: usize = 32;
/// The offset of the entries in a node.
const NODE_ENTRIES: usize = 8;
/// The size in bytes of an entry, and of the tail after the last entry.
const ENTRY: usize = 8;
/// Child numbers have 28 bits; readers ignore the upper four bits of the field.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// The only flag of a root that readers must understand. Readers ignore the other flags.
const FLAG_INCOMPAT: u8 = 1;

/// The highest block number that a child can have.
pub const MAX_CHILD: FileBlock = FileBlock(BLOCK_MASK);

/// `struct dx_root_info`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRootInfo {
    reserved_zero: U32,
    hash_version: u8,
    info_length: u8,
    indirect_levels: u8,
    unused_flags: u8,
}

/// `struct dx_entry`. In the first entry of a block, a [`RawCountLimit`] takes the place of the
/// hash.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    hash: U32,
    block: U32,
}

/// `struct dx_countlimit`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCountLimit {
    limit: U16,
    count: U16,
}

const _: () = assert!(size_of::<RawRootInfo>() == ROOT_ENTRIES - ROOT_INFO);
const _: () = assert!(size_of::<RawEntry>() == ENTRY);

/// The kind of an index block, which determines the offset of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The first block of the directory.
    Root,
    /// A block of a level below the root.
    Node,
}

impl Kind {
    fn entries_at(self) -> usize {
        match self {
            Kind::Root => ROOT_ENTRIES,
            Kind::Node => NODE_ENTRIES,
        }
    }

    /// Returns the largest number of entries that a block of this kind can hold.
    pub fn limit(self, format: &DirFormat) -> usize {
        let tail = if format.has_checksums { ENTRY } else { 0 };
        (format.block_size.bytes() - self.entries_at() - tail) / ENTRY
    }
}

/// An entry of an index block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The lowest hash in the child; the low bit is set if names with that hash are also in the
    /// previous child. 0 for the first entry of a block.
    pub hash: u32,
    /// The block number of the child.
    pub block: FileBlock,
}

impl IndexEntry {
    /// Returns whether names with this entry's hash are also in the previous child.
    pub fn continues(&self) -> bool {
        self.hash & 1 == 1
    }
}

/// The root of an index, checked.
#[derive(Debug, Clone, Copy)]
pub struct Root<'a> {
    /// The kind of hash by which the index is sorted.
    pub version: HashVersion,
    /// Levels of nodes between the root and the leaves.
    pub levels: u8,
    /// The inode of ".".
    pub ino: Ino,
    /// The inode of "..".
    pub parent: Ino,
    /// The entries.
    pub index: Index<'a>,
}

/// The entries of an index block; there is at least one.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a> {
    entries: &'a [RawEntry],
    limit: usize,
}

impl Index<'_> {
    /// Returns the number of entries, at least 1.
    #[allow(clippy::len_without_is_empty)] // the number is never 0
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no further entry fits.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.limit
    }

    /// Returns the entry at `position`, counted from 0.
    pub fn get(&self, position: usize) -> Option<IndexEntry> {
        let raw = self.entries.get(position)?;
        let hash = if position == 0 { 0 } else { raw.hash.get() };
        Some(IndexEntry { hash, block: FileBlock(raw.block.get() & BLOCK_MASK) })
    }

    /// Returns the position of the last entry whose hash is not above `hash`. The first leaf that
    /// can have a name with that hash is below this entry.
    pub fn search(&self, hash: u32) -> usize {
        let hashed = self.entries.get(1..).unwrap_or_default();
        hashed.partition_point(|entry| entry.hash.get() <= hash)
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = IndexEntry> + '_ {
        (0..self.len()).filter_map(|position| self.get(position))
    }
}

/// Returns the largest number of levels of nodes below the root: one, or two with `large_dir`.
pub fn max_levels(format: &DirFormat) -> u8 {
    if format.has_large_dirs { 2 } else { 1 }
}

/// Returns the kind of an index block, judged by its form; `None` if it is not an index block. In a
/// file system with checksums the form is unambiguous. Without checksums, an empty leaf looks like
/// a node.
pub fn shape(format: &DirFormat, block: &[u8]) -> Option<Kind> {
    let first = dirent::entry_at(format, block, 0).ok()?;
    if first.ino.is_none() && first.rec_len == block.len() {
        return Some(Kind::Node);
    }
    root_info(format, block).ok().map(|_| Kind::Root)
}

/// Decodes the root of an index and checks everything except the checksum.
pub fn root<'a>(format: &DirFormat, block: &'a [u8]) -> Result<Root<'a>, Cause> {
    let (info, ino, parent) = root_info(format, block)?;
    if info.info_length != 8 {
        return Err(Cause::InfoLength { found: info.info_length });
    }
    let version = HashVersion::from_byte(info.hash_version)
        .ok_or(Cause::HashVersion { found: info.hash_version })?;
    let allowed = max_levels(format);
    if info.indirect_levels > allowed {
        return Err(Cause::Levels { found: info.indirect_levels, allowed });
    }
    if info.unused_flags & FLAG_INCOMPAT != 0 {
        return Err(Cause::Flags { found: info.unused_flags });
    }
    let index = index(format, Kind::Root, block)?;
    Ok(Root { version, levels: info.indirect_levels, ino, parent, index })
}

/// Decodes a node of an index and checks everything except the checksum.
pub fn node<'a>(format: &DirFormat, block: &'a [u8]) -> Result<Index<'a>, Cause> {
    check_length(format, block)?;
    let first = dirent::entry_at(format, block, 0).map_err(|_| Cause::NotNode)?;
    if first.ino.is_some() || first.rec_len != block.len() {
        return Err(Cause::NotNode);
    }
    index(format, Kind::Node, block)
}

fn root_info<'a>(
    format: &DirFormat,
    block: &'a [u8],
) -> Result<(&'a RawRootInfo, Ino, Ino), Cause> {
    check_length(format, block)?;
    let (dot, dot_dot) = dirent::dots(format, block).map_err(|_| Cause::NotRoot)?;
    let covers =
        dot_dot.offset == dirent::MIN_RECORD && dot_dot.rec_len == block.len() - dirent::MIN_RECORD;
    let (Some(ino), Some(parent), true) = (dot.ino, dot_dot.ino, covers) else {
        return Err(Cause::NotRoot);
    };
    let info = block.get(ROOT_INFO..).and_then(|rest| RawRootInfo::ref_from_prefix(rest).ok());
    let (info, _) = info.ok_or(Cause::NotRoot)?;
    if info.reserved_zero.get() != 0 {
        return Err(Cause::NotRoot);
    }
    Ok((info, ino, parent))
}

fn index<'a>(format: &DirFormat, kind: Kind, block: &'a [u8]) -> Result<Index<'a>, Cause> {
    let expected = kind.limit(format);
    let area = block.get(kind.entries_at()..).unwrap_or_default();
    let (head, _) =
        RawCountLimit::ref_from_prefix(area).map_err(|_| Cause::Limit { expected, found: 0 })?;
    let (limit, count) = (usize::from(head.limit.get()), usize::from(head.count.get()));
    if limit != expected {
        return Err(Cause::Limit { expected, found: limit });
    }
    if count == 0 || count > limit {
        return Err(Cause::Count { count, limit });
    }
    let (entries, _) = <[RawEntry]>::ref_from_prefix_with_elems(area, count)
        .map_err(|_| Cause::Count { count, limit })?;
    Ok(Index { entries, limit })
}

fn check_length(format: &DirFormat, block: &[u8]) -> Result<(), Cause> {
    let expected = format.block_size.bytes();
    if block.len() != expected {
        return Err(Cause::Length { expected, found: block.len() });
    }
    Ok(())
}

/// Creates a root with these entries. Returns `None` unless there are 1 to [`Kind::limit`] entries.
/// [`seal`] sets the checksum.
pub fn new_root(
    format: &DirFormat,
    ino: Ino,
    parent: Ino,
    version: HashVersion,
    levels: u8,
    entries: &[IndexEntry],
) -> Option<Vec<u8>> {
    let mut block = dirent::new_directory(format, ino, parent);
    // The second record extends to the end of the block, because an index has no tail of the kind
    // that ends the records of a leaf.
    let covers = block.len() - dirent::MIN_RECORD;
    block.get_mut(dirent::MIN_RECORD + dirent::MIN_RECORD..)?.fill(0);
    block.get_mut(16..18)?.copy_from_slice(&u16::try_from(covers).ok()?.to_le_bytes());
    let info = RawRootInfo {
        reserved_zero: U32::ZERO,
        hash_version: version.byte(),
        info_length: 8,
        indirect_levels: levels,
        unused_flags: 0,
    };
    block.get_mut(ROOT_INFO..ROOT_ENTRIES)?.copy_from_slice(info.as_bytes());
    write_entries(format, Kind::Root, &mut block, entries).then_some(block)
}

/// Creates a node with these entries. Returns `None` unless there are 1 to [`Kind::limit`] entries.
pub fn new_node(format: &DirFormat, entries: &[IndexEntry]) -> Option<Vec<u8>> {
    let mut block = vec![0; format.block_size.bytes()];
    let covers = u16::try_from(block.len()).unwrap_or(0xffff);
    block.get_mut(4..6)?.copy_from_slice(&covers.to_le_bytes());
    write_entries(format, Kind::Node, &mut block, entries).then_some(block)
}

/// Replaces the entries of an index block. The format does not store the hash of the first entry.
/// Returns false, and changes nothing, if there are no entries or too many.
#[must_use]
pub fn write_entries(
    format: &DirFormat,
    kind: Kind,
    block: &mut [u8],
    entries: &[IndexEntry],
) -> bool {
    let limit = kind.limit(format);
    if entries.is_empty() || entries.len() > limit || block.len() != format.block_size.bytes() {
        return false;
    }
    let area = block.get_mut(kind.entries_at()..).unwrap_or_default();
    area.fill(0);
    for (place, entry) in area.chunks_exact_mut(ENTRY).zip(entries) {
        let raw = RawEntry { hash: U32::new(entry.hash), block: U32::new(entry.block.0) };
        place.copy_from_slice(raw.as_bytes());
    }
    let head =
        RawCountLimit { limit: U16::new(limit as u16), count: U16::new(entries.len() as u16) };
    if let Some(place) = area.get_mut(..size_of::<RawCountLimit>()) {
        place.copy_from_slice(head.as_bytes());
    }
    true
}

/// Sets the checksum of an index block; without `metadata_csum` does nothing.
///
/// # Errors
/// If limit or count is wrong, because they determine the position and the range of the checksum.
pub fn seal(format: &DirFormat, kind: Kind, seed: Seed, block: &mut [u8]) -> Result<(), Cause> {
    if !format.has_checksums {
        return Ok(());
    }
    let (tail, computed) = compute(format, kind, seed, block)?;
    if let Some(field) = block.get_mut(tail + 4..tail + 8) {
        field.copy_from_slice(&computed.to_le_bytes());
    }
    Ok(())
}

/// Verifies the checksum of an index block; `seed` is the seed of the directory's inode.
pub fn verify(format: &DirFormat, kind: Kind, seed: Seed, block: &[u8]) -> Result<(), Cause> {
    if !format.has_checksums {
        return Ok(());
    }
    let (tail, computed) = compute(format, kind, seed, block)?;
    let stored = block.get(tail + 4..).and_then(|rest| rest.first_chunk::<4>()).copied();
    let found = u32::from_le_bytes(stored.unwrap_or_default());
    if found != computed {
        return Err(Cause::Checksum { found, computed });
    }
    Ok(())
}

/// Returns the position of the tail, and the checksum. The checksum covers the block up to the last
/// entry in use, and then the tail with a checksum field of zero. The bytes between the last entry
/// in use and the tail are not covered.
fn compute(
    format: &DirFormat,
    kind: Kind,
    seed: Seed,
    block: &[u8],
) -> Result<(usize, u32), Cause> {
    let index = index(format, kind, block)?;
    let covered = kind.entries_at() + index.len() * ENTRY;
    let tail = kind.entries_at() + kind.limit(format) * ENTRY;
    let crc = seed
        .chain(block.get(..covered).unwrap_or_default())
        .chain(block.get(tail..tail + 4).unwrap_or_default())
        .chain_u32(0);
    Ok((tail, crc.value()))
}

#[cfg(test)]
mod tests;
