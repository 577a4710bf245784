//! Roots and nodes, decoded and checked.

use crate::cause::htree::Cause;
use crate::dirent::{self, DirFormat};
use crate::hash::HashVersion;
use crate::types::{FileBlock, Ino};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The offset of the index information in a root, after the headers and names of the two records.
pub(super) const ROOT_INFO: usize = 24;
/// The offset of the entries in a root.
pub(super) const ROOT_ENTRIES: usize = 32;
/// The offset of the entries in a node.
pub(super) const NODE_ENTRIES: usize = 8;
/// The size in bytes of an entry, and of the tail after the last entry.
pub(super) const ENTRY: usize = 8;
/// Child numbers have 28 bits; readers ignore the upper four bits of the field.
pub(super) const BLOCK_MASK: u32 = 0x0fff_ffff;

/// The only flag of a root that readers must understand. Readers ignore the other flags.
const FLAG_INCOMPAT: u8 = 1;

/// The highest block number that a child can have.
pub const MAX_CHILD: FileBlock = FileBlock(BLOCK_MASK);

/// `struct dx_root_info`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawRootInfo {
    pub(super) reserved_zero: U32,
    pub(super) hash_version: u8,
    pub(super) info_length: u8,
    pub(super) indirect_levels: u8,
    pub(super) unused_flags: u8,
}

/// `struct dx_entry`. In the first entry of a block, a [`RawCountLimit`] takes the place of the
/// hash.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawEntry {
    pub(super) hash: U32,
    pub(super) block: U32,
}

/// `struct dx_countlimit`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawCountLimit {
    pub(super) limit: U16,
    pub(super) count: U16,
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
    pub(super) fn entries_at(self) -> usize {
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

pub(super) fn root_info<'a>(
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

pub(super) fn index<'a>(
    format: &DirFormat,
    kind: Kind,
    block: &'a [u8],
) -> Result<Index<'a>, Cause> {
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

pub(super) fn check_length(format: &DirFormat, block: &[u8]) -> Result<(), Cause> {
    let expected = format.block_size.bytes();
    if block.len() != expected {
        return Err(Cause::Length { expected, found: block.len() });
    }
    Ok(())
}
