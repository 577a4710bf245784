//! Lays out the groups that are added to a file system, and the descriptor blocks that the larger
//! file system reserves.

use super::layout::{group_range, place_tables_from};
use super::resize;
use super::runs::Runs;
use lanefs_device::{Device, DeviceError};
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group};

/// The slot of the double indirect block in the resize inode's block field.
pub const DOUBLE_INDIRECT: usize = 13;

/// A new group: its block bitmap, and its descriptor, which does not yet have the checksums of the
/// bitmaps.
#[derive(Debug, Clone)]
pub struct NewGroup {
    /// The number of the group.
    pub group: Group,
    /// The group's descriptor. It says that no inode is in use, and that the inode table is zeroed.
    /// ([`NewGroup::write`] zeroes the table.) It has `BLOCK_UNINIT` if the block bitmap need not
    /// be written.
    pub desc: GroupDesc,
    /// The blocks in this group that hold the group's own metadata, or metadata of other new
    /// groups.
    pub bitmap: Bitmap,
}

impl NewGroup {
    /// Writes the bitmaps that must be on disk, and the empty inode table. Nothing refers to these
    /// blocks yet. Returns the descriptor with the checksums of the bitmaps.
    ///
    /// # Errors
    /// The device's errors.
    pub fn write(
        &self,
        device: &dyn Device,
        geometry: &Geometry,
        checksums: Checksums,
    ) -> Result<GroupDesc, DeviceError> {
        let bits = geometry.block_size().bits();
        let mut desc = self.desc;
        let mut bytes = vec![0; geometry.block_size().bytes()];
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            self.bitmap.encode_blocks_into(&mut bytes, &mut desc, geometry, checksums);
            device.write_at(desc.block_bitmap.0 << bits, &bytes)?;
        }
        if checksums == Checksums::None {
            let inodes = Bitmap::new(geometry.inodes_per_group());
            inodes.encode_inodes_into(&mut bytes, &mut desc, geometry, checksums);
            device.write_at(desc.inode_bitmap.0 << bits, &bytes)?;
        }
        let table = u64::from(geometry.itable_blocks());
        device.write_zeros(desc.inode_table.0 << bits, table << bits)?;
        Ok(desc)
    }
}

/// Places the metadata of group `from` and of all later groups, using only blocks of these groups.
/// `geometry` is the geometry of the larger file system. Returns `None` if there is no room for the
/// metadata of the groups.
pub fn new_groups(geometry: &Geometry, from: Group, checksums: Checksums) -> Option<Vec<NewGroup>> {
    if from.0 >= geometry.group_count() {
        // No group is new; only the last group gets more blocks.
        return Some(Vec::new());
    }
    let mut used = Runs::new(geometry.block_count());
    used.take(0, geometry.group_first_block(from)?.0);
    for group in (from.0..geometry.group_count()).map(Group) {
        let (first, len) = (geometry.group_first_block(group)?, geometry.group_overhead(group));
        if !used.is_free(first.0, len.into()) {
            return None;
        }
        used.take(first.0, len.into());
    }
    let tables = place_tables_from(geometry, &mut used, from.0)?;
    let may_be_uninit = checksums != Checksums::None;
    let groups = (from.0..geometry.group_count()).map(Group).zip(tables);
    let inodes = geometry.inodes_per_group();
    groups
        .map(|(group, tables)| {
            let range = group_range(geometry, group);
            let mut bitmap = Bitmap::new((range.end - range.start) as u32);
            for run in used.used_in(range.clone()) {
                bitmap.fill((run.start - range.start) as u32..(run.end - range.start) as u32);
            }
            let mut desc = GroupDesc {
                block_bitmap: Block(tables.block_bitmap),
                inode_bitmap: Block(tables.inode_bitmap),
                inode_table: Block(tables.inode_table),
                free_blocks: bitmap.count_clear(),
                free_inodes: inodes,
                used_dirs: 0,
                itable_unused: if may_be_uninit { inodes } else { 0 },
                flags: GroupFlags::INODE_ZEROED,
                block_bitmap_csum: 0,
                inode_bitmap_csum: 0,
                exclude_bitmap: Block(0),
            };
            let own =
                Bitmap::uninitialised_blocks(group, desc.metadata(geometry), geometry).ok()?;
            let is_last = group.0 + 1 == geometry.group_count();
            desc.flags.set(GroupFlags::INODE_UNINIT, may_be_uninit);
            desc.flags.set(GroupFlags::BLOCK_UNINIT, may_be_uninit && !is_last && own == bitmap);
            Some(NewGroup { group, desc, bitmap })
        })
        .collect()
}

/// Returns the blocks of the resize inode with their contents; `pointers` is its double indirect
/// block.
pub fn resize_blocks(geometry: &Geometry, pointers: Block) -> Vec<(Block, Vec<u8>)> {
    let blocks = resize::blocks(geometry, pointers.0).into_iter();
    blocks.map(|(place, bytes)| (Block(place), bytes)).collect()
}

/// Returns how many blocks the resize inode has.
pub fn resize_block_count(geometry: &Geometry) -> u64 {
    resize::block_count(geometry)
}

/// Returns the positions of descriptor block `index`: first the primary one, then its copies.
pub fn descriptor_copies(geometry: &Geometry, index: u32) -> Vec<Block> {
    let with_super: Vec<Group> = std::iter::once(Group(0)).chain(geometry.backups()).collect();
    super::write::descriptor_copies(geometry, &with_super, index)
}

/// Returns the double indirect block of the resize inode.
pub fn resize_pointers(inode: &Inode) -> Block {
    let at = DOUBLE_INDIRECT * 4;
    let word = inode.block.get(at..at + 4).and_then(|word| word.try_into().ok());
    Block(u32::from_le_bytes(word.unwrap_or_default()).into())
}
