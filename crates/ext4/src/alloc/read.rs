//! Reads a group's bitmaps from their blocks, or computes those that were never written.

use crate::volume::reader::BlockReader;
use lanefs_lanes::Latest;
use lanefs_ondisk::bitmap::{Bitmap, Cause};
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Corruption, Group};
use lanefs_plan::Error;
use lanefs_plan::system::SystemBlocks;
use std::sync::Arc;

/// The properties that all groups share.
#[derive(Debug)]
pub(crate) struct Format {
    /// Replaced when the file system grows.
    pub geometry: Latest<Geometry>,
    pub checksums: Checksums,
    pub system: Arc<SystemBlocks>,
}

impl Format {
    /// Returns the present geometry of the file system.
    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        self.geometry.get()
    }

    /// Reads the block bitmap of `group` and checks that all metadata in the group is marked as in
    /// use, including metadata there that belongs to other groups.
    pub(crate) fn read_blocks(
        &self,
        read: &dyn BlockReader,
        group: Group,
        desc: &GroupDesc,
    ) -> Result<Bitmap, Error> {
        let Format { checksums, system, .. } = self;
        let geometry = self.geometry();
        let first = geometry.group_first_block(group).unwrap_or_default().0;
        let len = geometry.clusters_in_group(group).unwrap_or(0);
        let bit = |block: u64| ((block - first) >> geometry.cluster_bits()) as u32;
        let metadata = system
            .within(first..first + (u64::from(len) << geometry.cluster_bits()))
            .map(|run| bit(run.start)..bit(run.end));
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let mut bitmap = Bitmap::new(len);
            metadata.for_each(|range| bitmap.fill(range));
            let (clear, free) = (bitmap.count_clear(), desc.free_blocks);
            return match clear == free {
                true => Ok(bitmap),
                false => Err(damage(group, Cause::FreeCount { clear, free })),
            };
        }
        let bytes = read.read_block(desc.block_bitmap)?;
        let bitmap = Bitmap::decode_blocks(&bytes, group, desc, geometry, *checksums)?;
        for range in metadata {
            if let Some(bit) = bitmap.next_clear(range) {
                return Err(damage(group, Cause::MetadataClear { bit }));
            }
        }
        Ok(bitmap)
    }

    /// Reads the inode bitmap of `group`.
    pub(crate) fn read_inodes(
        &self,
        read: &dyn BlockReader,
        group: Group,
        desc: &GroupDesc,
    ) -> Result<Bitmap, Error> {
        let (geometry, checksums) = (self.geometry(), self.checksums);
        let bits = geometry.inodes_per_group();
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let bytes = read.read_block(desc.inode_bitmap)?;
            let bitmap = Bitmap::decode_inodes(&bytes, group, desc, geometry, checksums)?;
            // The allocation of an inode initialises the inode table up to that inode. If bits in
            // the unused part were set, the next allocation would skip their inodes, and the
            // initialisation could take more blocks than a transaction can have. So a bitmap with a
            // set bit in the unused part counts as damaged.
            let unused = bits.saturating_sub(desc.itable_unused)..bits;
            if geometry.features().has_descriptor_checksums()
                && let Some(bit) = bitmap.next_set(unused)
            {
                return Err(damage(group, Cause::NeverUsed { bit }));
            }
            return Ok(bitmap);
        }
        match desc.free_inodes == bits {
            true => Ok(Bitmap::new(bits)),
            false => {
                let free = desc.free_inodes;
                Err(damage(group, Cause::FreeCount { clear: bits, free }))
            }
        }
    }
}

pub(crate) fn damage(group: Group, cause: Cause) -> Error {
    Corruption::Bitmap { group, cause }.into()
}
