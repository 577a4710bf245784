//! Other sizes of an existing file system: the superblock that it then has, the groups that are
//! added to it, and the inode that reserves its descriptor blocks.

use crate::layout::{self, group_range, place_tables_from};
use crate::runs::Runs;
use lanefs_device::{Device, DeviceError};
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::superblock::{Geometry, RawSuperblock, State, Superblock};
use lanefs_ondisk::{BadSize, Block, Corruption, Group, Ino};
use thiserror::Error;

/// The smallest number of data blocks in a last group; a shorter group is left out, as in mke2fs.
const MIN_LAST_GROUP: u64 = 50;

/// The reason why a file system cannot have the requested size.
#[derive(Debug, Clone, Error)]
pub enum SizeError {
    /// The size or the layout does not allow the change.
    #[error(transparent)]
    Refused(#[from] BadSize),
    /// The superblock is damaged.
    #[error(transparent)]
    Corruption(#[from] Corruption),
}

/// Returns the superblock that the file system has after it was resized to `blocks` blocks, or to
/// fewer if the last group would be too short. The counts of free blocks and inodes are still those
/// of the old size. Without a resize inode, new descriptors are placed in the new groups
/// (`meta_bg`).
///
/// # Errors
/// [`SizeError::Refused`], for example if the resize inode reserves too few blocks for descriptors.
pub fn resized(superblock: &Superblock, blocks: u64) -> Result<Superblock, SizeError> {
    let old = superblock.geometry();
    if old.features().compat.contains(Compat::SPARSE_SUPER2) {
        return Err(BadSize::SparseSuper2.into());
    }
    if old.features().ro_compat.contains(RoCompat::BIGALLOC) {
        return Err(BadSize::Bigalloc.into());
    }
    let mut blocks = blocks;
    if !old.features().incompat.contains(Incompat::BIT64) {
        blocks = blocks.min(u32::MAX.into());
    }
    let next = with_blocks(superblock, blocks)?;
    let last = Group(next.geometry().group_count() - 1);
    let in_last = u64::from(next.geometry().blocks_in_group(last).unwrap_or(0));
    let least = u64::from(next.geometry().group_overhead(last))
        + 2
        + u64::from(old.itable_blocks())
        + MIN_LAST_GROUP;
    let is_new = blocks != old.block_count() && last.0 > 0;
    if is_new && in_last < least {
        return with_blocks(superblock, next.geometry().block_count() - in_last);
    }
    Ok(next)
}

/// Returns the superblock as a backup stores it: with the number of its group, and never marked
/// clean.
///
/// # Errors
/// [`Corruption`] if the superblock is not valid.
pub fn backup(superblock: &Superblock, group: Group) -> Result<Superblock, Corruption> {
    let mut raw = superblock.raw().clone();
    raw.s_block_group_nr.set(u16::try_from(group.0).unwrap_or(u16::MAX));
    let mut backup = Superblock::from_raw(raw)?;
    backup.set_state(State::empty());
    Ok(backup)
}

fn with_blocks(superblock: &Superblock, blocks: u64) -> Result<Superblock, SizeError> {
    let old = superblock.geometry();
    let per_group = u64::from(old.blocks_per_group());
    let groups = blocks.saturating_sub(old.first_data_block().0).div_ceil(per_group);
    let inodes = groups.checked_mul(old.inodes_per_group().into());
    let inodes = inodes.and_then(|inodes| u32::try_from(inodes).ok());
    let inodes = inodes.ok_or(BadSize::TooManyInodes { groups })?;
    let mut raw = superblock.raw().clone();
    raw.s_blocks_count_lo.set(blocks as u32);
    raw.s_blocks_count_hi.set((blocks >> 32) as u32);
    raw.s_inodes_count.set(inodes);
    // The right counts of free blocks and inodes are set later. Until then the counts must not
    // exceed the new totals, because a check of the superblock would fail.
    let free = superblock.free_blocks().min(blocks);
    raw.s_free_blocks_count_lo.set(free as u32);
    raw.s_free_blocks_count_hi.set((free >> 32) as u32);
    raw.s_free_inodes_count.set(superblock.free_inodes().min(inodes));
    let reserved = u128::from(superblock.reserved_blocks()) * u128::from(blocks)
        / u128::from(old.block_count().max(1));
    raw.s_r_blocks_count_lo.set(reserved as u32);
    raw.s_r_blocks_count_hi.set((reserved >> 32) as u32);
    let desc_blocks = groups.div_ceil(old.descs_per_block().into());
    let more = desc_blocks.saturating_sub(old.desc_blocks().into());
    let fewer = u64::from(old.desc_blocks()).saturating_sub(desc_blocks);
    if more > 0 {
        make_room_for_descriptors(superblock, &mut raw, more)?;
    } else if fewer > 0 && old.features().compat.contains(Compat::RESIZE_INODE) {
        // The resize inode has one block of pointers to the reserved blocks, so their number is
        // limited.
        let most = old.block_size().bytes() as u64 / 4;
        let reserved = (u64::from(old.reserved_gdt_blocks()) + fewer).min(most);
        raw.s_reserved_gdt_blocks.set(reserved as u16);
    }
    let heads_before = superblock.raw().s_overhead_clusters.get();
    let next = Superblock::from_raw(raw.clone())?;
    if next.features().compat.contains(Compat::RESIZE_INODE) && !is_in_reach(&next.geometry()) {
        return Err(BadSize::FarBackup.into());
    }
    if heads_before != 0 {
        let others = u64::from(heads_before).saturating_sub(overhead(&old));
        let overhead = overhead(&next.geometry()) + others;
        raw.s_overhead_clusters.set(u32::try_from(overhead).unwrap_or(0));
    }
    Ok(Superblock::from_raw(raw)?)
}

/// Uses `more` of the reserved blocks for descriptors, or places the new descriptors in the new
/// groups.
fn make_room_for_descriptors(
    superblock: &Superblock,
    raw: &mut RawSuperblock,
    more: u64,
) -> Result<(), SizeError> {
    let features = superblock.features();
    if features.incompat.contains(Incompat::META_BG) {
        return Ok(());
    }
    if !features.compat.contains(Compat::RESIZE_INODE) {
        raw.s_feature_incompat.set((features.incompat | Incompat::META_BG).bits());
        raw.s_first_meta_bg.set(superblock.geometry().desc_blocks());
        return Ok(());
    }
    let reserved = u64::from(raw.s_reserved_gdt_blocks.get());
    let left = reserved.checked_sub(more).ok_or(BadSize::FewDescriptors { more, reserved })?;
    raw.s_reserved_gdt_blocks.set(left as u16);
    Ok(())
}

/// Returns the largest number of blocks for whose descriptors the resize inode reserves room.
pub fn reach_of_reserved(geometry: &Geometry) -> u64 {
    let desc_blocks = u64::from(geometry.desc_blocks()) + u64::from(geometry.reserved_gdt_blocks());
    let groups = desc_blocks * u64::from(geometry.descs_per_block());
    geometry.first_data_block().0 + groups * u64::from(geometry.blocks_per_group())
}

/// Returns the superblock without a resize inode: the descriptors of further groups then lie in
/// these groups (`meta_bg`).
///
/// # Errors
/// [`Corruption`] if the superblock is not valid.
pub fn without_resize_inode(superblock: &Superblock) -> Result<Superblock, Corruption> {
    let mut raw = superblock.raw().clone();
    raw.s_feature_compat.set((superblock.features().compat - Compat::RESIZE_INODE).bits());
    raw.s_reserved_gdt_blocks.set(0);
    Superblock::from_raw(raw)
}

/// Returns the number of blocks that hold no files: superblocks, descriptors, bitmaps, tables.
fn overhead(geometry: &Geometry) -> u64 {
    let groups = (0..geometry.group_count()).map(Group);
    let heads: u64 = groups.map(|group| u64::from(geometry.group_overhead(group))).sum();
    heads + u64::from(geometry.group_count()) * (2 + u64::from(geometry.itable_blocks()))
}

// Lays out the groups that are added to a file system, and the descriptor blocks that the larger
// file system reserves.

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
    let blocks = blocks(geometry, pointers.0).into_iter();
    blocks.map(|(place, bytes)| (Block(place), bytes)).collect()
}

/// Returns how many blocks the resize inode has.
pub fn resize_block_count(geometry: &Geometry) -> u64 {
    block_count(geometry)
}

/// Returns the positions of descriptor block `index`: first the primary one, then its copies.
pub fn descriptor_copies(geometry: &Geometry, index: u32) -> Vec<Block> {
    let with_super: Vec<Group> = std::iter::once(Group(0)).chain(geometry.backups()).collect();
    layout::descriptor_copies(geometry, &with_super, index)
}

/// Returns the double indirect block of the resize inode.
pub fn resize_pointers(inode: &Inode) -> Block {
    let at = DOUBLE_INDIRECT * 4;
    let word = inode.block.get(at..at + 4).and_then(|word| word.try_into().ok());
    Block(u32::from_le_bytes(word.unwrap_or_default()).into())
}

// The inode that reserves descriptor blocks, so that the file system can grow while it is mounted.
//
// The inode has a block map: its only double indirect block points to the reserved blocks after
// the descriptors, and each reserved block points to its counterparts after the backups.

/// The slot of an inode's block field that points to the double indirect block.
pub const DOUBLE_INDIRECT: usize = 13;

/// The inode's number.
pub(crate) const INO: Ino = Ino::RESIZE;

/// Returns the positions and contents of the inode's blocks. The double indirect block, at
/// `pointers`, comes first.
pub(crate) fn blocks(geometry: &Geometry, pointers: u64) -> Vec<(u64, Vec<u8>)> {
    let block_size = geometry.block_size().bytes();
    let slots = block_size / 4;
    let mut top = vec![0u32; slots];
    let mut blocks = Vec::new();
    let backups: Vec<u64> = backups(geometry).collect();
    let first = geometry.desc_blocks();
    for index in first..first + geometry.reserved_gdt_blocks() {
        let place = geometry.super_block().0 + 1 + u64::from(index);
        top[index as usize % slots] = place as u32;
        // Each group with a backup of the superblock has a counterpart of the block at `place`, at
        // the same distance from the start of the group. With `bigalloc` and blocks of 1 KiB this
        // position is one block too far, but the kernel and e2fsck expect it.
        let first = geometry.first_data_block().0;
        let counterpart = |start: &u64| (place + start - first) as u32;
        let mut counterparts: Vec<u32> = backups.iter().map(counterpart).collect();
        counterparts.resize(slots, 0);
        blocks.push((place, bytes_of(&counterparts)));
    }
    blocks.insert(0, (pointers, bytes_of(&top)));
    blocks
}

/// Returns the block field of the inode.
pub(crate) fn block_field(pointers: u64) -> [u8; 60] {
    let mut field = [0; 60];
    let at = DOUBLE_INDIRECT * 4;
    field[at..at + 4].copy_from_slice(&(pointers as u32).to_le_bytes());
    field
}

/// Returns the inode's size in bytes: the largest size that a block map with a double indirect
/// block can map.
pub(crate) fn size(geometry: &Geometry) -> u64 {
    let slots = geometry.block_size().bytes() as u64 / 4;
    (12 + slots + slots * slots) << geometry.block_size().bits()
}

/// Returns how many blocks the inode has: its double indirect block, and the blocks that it
/// reserves after the primary descriptors and after each backup.
pub(crate) fn block_count(geometry: &Geometry) -> u64 {
    let reserved = u64::from(geometry.reserved_gdt_blocks());
    1 + reserved * (1 + backups(geometry).count() as u64)
}

/// Returns whether the inode's block map, which has 32 bits for a block's number, can refer to all
/// reserved blocks.
pub(crate) fn is_in_reach(geometry: &Geometry) -> bool {
    let reserved = u64::from(geometry.desc_blocks() + geometry.reserved_gdt_blocks());
    geometry.reserved_gdt_blocks() == 0
        || backups(geometry).all(|start| start + reserved <= u32::MAX.into())
}

/// Returns the first blocks of the groups that have a backup.
fn backups(geometry: &Geometry) -> impl Iterator<Item = u64> {
    let groups = (1..geometry.group_count()).map(Group);
    groups
        .filter(|&group| geometry.group_has_super(group))
        .filter_map(|group| geometry.group_first_block(group).map(|block| block.0))
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
