//! Writes index blocks.

use super::index::{
    ENTRY, IndexEntry, Kind, ROOT_ENTRIES, ROOT_INFO, RawCountLimit, RawEntry, RawRootInfo,
};
use crate::dirent::{self, DirFormat};
use crate::hash::HashVersion;
use crate::types::Ino;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// Creates a root with these entries. Returns `None` unless there are 1 to [`Kind::limit`] entries.
/// [`super::seal`] sets the checksum.
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
