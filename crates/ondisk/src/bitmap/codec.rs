//! Decodes bitmaps from their blocks and encodes them, and checks them against the descriptor of
//! their group.

use super::{Bitmap, Cause};
use crate::checksum::Checksums;
use crate::error::Corruption;
use crate::group_desc::GroupDesc;
use crate::superblock::Geometry;
use crate::types::{Block, Group};
use std::ops::Range;

impl Bitmap {
    /// Decodes the block bitmap of a group from its block. Checks length, checksum, the count of
    /// free blocks, and that the group's own metadata is in use.
    ///
    /// Must not be called for a group with `BLOCK_UNINIT`: see [`Bitmap::uninitialised_blocks`].
    ///
    /// # Errors
    /// [`Corruption::Bitmap`].
    pub fn decode_blocks(
        bytes: &[u8],
        group: Group,
        desc: &GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<Bitmap, Corruption> {
        let decode = || {
            let bits = geometry.clusters_in_group(group).ok_or(Cause::NoSuchGroup)?;
            let expected = block_checksum(bytes, geometry, checksums)?;
            check_checksum(desc.block_bitmap_csum, expected, geometry)?;
            let bitmap = Bitmap::from_bytes(bytes, bits);
            bitmap.check_count(desc.free_blocks)?;
            for range in own_metadata(group, desc, geometry) {
                if let Some(bit) = bitmap.next_clear(range) {
                    return Err(Cause::MetadataClear { bit });
                }
            }
            Ok(bitmap)
        };
        decode().map_err(|cause| Corruption::Bitmap { group, cause })
    }

    /// Decodes the inode bitmap of a group from its block. Checks length, checksum and the count of
    /// free inodes.
    ///
    /// Must not be called for a group with `INODE_UNINIT`, whose inodes are all free.
    ///
    /// # Errors
    /// [`Corruption::Bitmap`].
    pub fn decode_inodes(
        bytes: &[u8],
        group: Group,
        desc: &GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<Bitmap, Corruption> {
        let decode = || {
            let expected = inode_checksum(bytes, geometry, checksums)?;
            check_checksum(desc.inode_bitmap_csum, expected, geometry)?;
            let bitmap = Bitmap::from_bytes(bytes, geometry.inodes_per_group());
            bitmap.check_count(desc.free_inodes)?;
            Ok(bitmap)
        };
        decode().map_err(|cause| Corruption::Bitmap { group, cause })
    }

    /// Writes this block bitmap to its block, which is `bytes`. Stores the bitmap's checksum in the
    /// descriptor. The checksum of the descriptor itself is not updated.
    ///
    /// # Panics
    /// If `bytes` is not one block long, which is an error of the caller.
    pub fn encode_blocks_into(
        &self,
        bytes: &mut [u8],
        desc: &mut GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) {
        self.fill_block(bytes, geometry);
        if let Ok(Some(sum)) = block_checksum(bytes, geometry, checksums) {
            desc.block_bitmap_csum = kept(sum, geometry);
        }
    }

    /// Writes this inode bitmap to its block, which is `bytes`. Stores the bitmap's checksum in the
    /// descriptor. The checksum of the descriptor itself is not updated.
    ///
    /// # Panics
    /// If `bytes` is not one block long, which is an error of the caller.
    pub fn encode_inodes_into(
        &self,
        bytes: &mut [u8],
        desc: &mut GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) {
        self.fill_block(bytes, geometry);
        if let Ok(Some(sum)) = inode_checksum(bytes, geometry, checksums) {
            desc.inode_bitmap_csum = kept(sum, geometry);
        }
    }

    fn fill_block(&self, bytes: &mut [u8], geometry: &Geometry) {
        assert_eq!(bytes.len(), geometry.block_size().bytes(), "length of a bitmap");
        self.write_to(bytes);
    }

    /// Returns the block bitmap of a group with `BLOCK_UNINIT`. The blocks in use are those of the
    /// superblock and the descriptors, and the parts of the runs in `metadata` that are in the
    /// group. For `metadata`, it is enough to pass [`GroupDesc::metadata`] of the same group. The
    /// reason is that a group with `BLOCK_UNINIT` contains no metadata of other groups: a program
    /// that places such metadata in a group also initialises the group's bitmap.
    ///
    /// # Errors
    /// [`Corruption::Bitmap`] if the group does not exist.
    pub fn uninitialised_blocks(
        group: Group,
        metadata: impl IntoIterator<Item = (Block, u64)>,
        geometry: &Geometry,
    ) -> Result<Bitmap, Corruption> {
        let no_group = Corruption::Bitmap { group, cause: Cause::NoSuchGroup };
        let bits = geometry.clusters_in_group(group).ok_or(no_group)?;
        let mut bitmap = Bitmap::new(bits);
        let overhead = u64::from(geometry.group_overhead(group));
        let first = geometry.group_first_block(group).unwrap_or_default();
        for (start, len) in std::iter::once((first, overhead)).chain(metadata) {
            if let Some(range) = bits_of(start, len, group, geometry) {
                bitmap.fill(range);
            }
        }
        Ok(bitmap)
    }

    /// Verifies the checksum of an encoded block bitmap, without any other check.
    ///
    /// # Errors
    /// [`Cause::Length`] or [`Cause::Checksum`].
    pub fn verify_blocks(
        bytes: &[u8],
        desc: &GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<(), Cause> {
        let expected = block_checksum(bytes, geometry, checksums)?;
        check_checksum(desc.block_bitmap_csum, expected, geometry)
    }

    /// Verifies the checksum of an encoded inode bitmap, without any other check.
    ///
    /// # Errors
    /// [`Cause::Length`] or [`Cause::Checksum`].
    pub fn verify_inodes(
        bytes: &[u8],
        desc: &GroupDesc,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<(), Cause> {
        let expected = inode_checksum(bytes, geometry, checksums)?;
        check_checksum(desc.inode_bitmap_csum, expected, geometry)
    }

    fn check_count(&self, free: u32) -> Result<(), Cause> {
        let clear = self.count_clear();
        (clear == free).then_some(()).ok_or(Cause::FreeCount { clear, free })
    }
}

impl GroupDesc {
    /// Returns the runs of blocks that contain the group's bitmaps and inode table.
    pub fn metadata(&self, geometry: &Geometry) -> [(Block, u64); 3] {
        let table = u64::from(geometry.itable_blocks());
        [(self.block_bitmap, 1), (self.inode_bitmap, 1), (self.inode_table, table)]
    }
}

/// Returns which bits of a group's block bitmap represent the group's own metadata: superblock,
/// descriptors, and those parts of its bitmaps and inode table that are in the group. These bits
/// must be set.
fn own_metadata(
    group: Group,
    desc: &GroupDesc,
    geometry: &Geometry,
) -> impl Iterator<Item = Range<u32>> {
    let head = match group {
        Group(0) => geometry.primary_metadata().end - geometry.first_data_block().0,
        _ => geometry.group_overhead(group).into(),
    };
    let overhead = geometry.clusters().holding(head as u32);
    let runs = desc.metadata(geometry);
    let geometry = *geometry;
    let rest =
        runs.into_iter().filter_map(move |(start, len)| bits_of(start, len, group, &geometry));
    std::iter::once(0..overhead).chain(rest)
}

/// Returns which bits of a group's block bitmap represent the `len` blocks from `start`; `None` if
/// none of these blocks is in the group.
fn bits_of(start: Block, len: u64, group: Group, geometry: &Geometry) -> Option<Range<u32>> {
    let first = geometry.group_first_block(group)?.0;
    let end = geometry.group_last_block(group)?.0 + 1;
    let from = start.0.max(first);
    let to = start.0.saturating_add(len).min(end);
    if from >= to {
        return None;
    }
    let bit = |block: u64| ((block - first) >> geometry.cluster_bits()) as u32;
    Some(bit(from)..bit(to - 1) + 1)
}

/// Computes the checksum over as many bytes as the bitmap of a full group has. The number of bytes
/// is the same for the last group, although this group may have fewer blocks. The rest of the block
/// is not covered.
fn block_checksum(
    bytes: &[u8],
    geometry: &Geometry,
    checksums: Checksums,
) -> Result<Option<u32>, Cause> {
    checksum(bytes, geometry.clusters_per_group(), geometry, checksums)
}

fn inode_checksum(
    bytes: &[u8],
    geometry: &Geometry,
    checksums: Checksums,
) -> Result<Option<u32>, Cause> {
    checksum(bytes, geometry.inodes_per_group(), geometry, checksums)
}

fn checksum(
    bytes: &[u8],
    bits: u32,
    geometry: &Geometry,
    checksums: Checksums,
) -> Result<Option<u32>, Cause> {
    let length = Cause::Length { len: bytes.len() };
    if bytes.len() != geometry.block_size().bytes() {
        return Err(length);
    }
    let covered = bytes.get(..bits as usize / 8).ok_or(length)?;
    Ok(checksums.seed().map(|seed| seed.chain(covered).value()))
}

fn check_checksum(found: u32, expected: Option<u32>, geometry: &Geometry) -> Result<(), Cause> {
    match expected.map(|sum| kept(sum, geometry)) {
        Some(expected) if expected != found => Err(Cause::Checksum { found, expected }),
        _ => Ok(()),
    }
}

/// Returns the stored part of a checksum: 32-byte descriptors store only the lower half.
fn kept(sum: u32, geometry: &Geometry) -> u32 {
    if geometry.desc_size() >= 64 { sum } else { sum & 0xffff }
}
