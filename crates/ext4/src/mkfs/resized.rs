//! Computes the superblock that a file system has after its size was changed.

use super::resize;
use crate::error::{BadSize, CannotGrow, Error as Ext4Error};
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::superblock::{Geometry, RawSuperblock, State, Superblock};
use lanefs_ondisk::{Corruption, Group};
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

impl From<SizeError> for Ext4Error {
    fn from(error: SizeError) -> Ext4Error {
        match error {
            SizeError::Refused(reason) => CannotGrow::Size(reason).into(),
            SizeError::Corruption(cause) => cause.into(),
        }
    }
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
    if next.features().compat.contains(Compat::RESIZE_INODE)
        && !resize::is_in_reach(&next.geometry())
    {
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

/// Returns the number of blocks that hold no files: superblocks, descriptors, bitmaps, tables.
fn overhead(geometry: &Geometry) -> u64 {
    let groups = (0..geometry.group_count()).map(Group);
    let heads: u64 = groups.map(|group| u64::from(geometry.group_overhead(group))).sum();
    heads + u64::from(geometry.group_count()) * (2 + u64::from(geometry.itable_blocks()))
}
