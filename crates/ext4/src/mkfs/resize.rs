//! The inode that reserves descriptor blocks, so that the file system can grow while it is mounted.
//!
//! The inode has a block map: its only double indirect block points to the reserved blocks after
//! the descriptors, and each reserved block points to its counterparts after the backups.

use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Group, Ino};

/// The slot of an inode's block field that points to the double indirect block.
const DOUBLE_INDIRECT: usize = 13;

/// The inode's number.
pub(super) const INO: Ino = Ino::RESIZE;

/// Returns the positions and contents of the inode's blocks. The double indirect block, at
/// `pointers`, comes first.
pub(super) fn blocks(geometry: &Geometry, pointers: u64) -> Vec<(u64, Vec<u8>)> {
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
pub(super) fn block_field(pointers: u64) -> [u8; 60] {
    let mut field = [0; 60];
    let at = DOUBLE_INDIRECT * 4;
    field[at..at + 4].copy_from_slice(&(pointers as u32).to_le_bytes());
    field
}

/// Returns the inode's size in bytes: the largest size that a block map with a double indirect
/// block can map.
pub(super) fn size(geometry: &Geometry) -> u64 {
    let slots = geometry.block_size().bytes() as u64 / 4;
    (12 + slots + slots * slots) << geometry.block_size().bits()
}

/// Returns how many blocks the inode has: its double indirect block, and the blocks that it
/// reserves after the primary descriptors and after each backup.
pub(super) fn block_count(geometry: &Geometry) -> u64 {
    let reserved = u64::from(geometry.reserved_gdt_blocks());
    1 + reserved * (1 + backups(geometry).count() as u64)
}

/// Returns whether the inode's block map, which has 32 bits for a block's number, can refer to all
/// reserved blocks.
pub(super) fn is_in_reach(geometry: &Geometry) -> bool {
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
