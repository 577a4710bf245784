//! Writes all blocks that the layout placed, the superblock last.

mod contents;
mod directory;
mod files;
mod format;

pub(crate) use contents::{Ready, ReadyInode, contents};
pub(crate) use format::{BlockWriter, Format};

use crate::layout::{Layout, descriptor_copies, group_range};
use crate::options::{Contents, InodeTables, MkfsOptions};
use crate::report::MkfsError;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::superblock::{Geometry, State, Superblock};
use lanefs_ondisk::{Block, Corruption, Group};

pub(crate) fn write(
    out: &mut BlockWriter<'_>,
    options: &MkfsOptions,
    superblock: &Superblock,
    layout: &Layout,
    inodes: &[ReadyInode],
) -> Result<(), MkfsError> {
    let mut descriptors = describe(options, superblock, layout);
    write_bitmaps(out, superblock, layout, &mut descriptors)?;
    zero_tables(out, superblock, &descriptors)?;
    files::write(out, superblock, layout, inodes)?;
    write_descriptors(out, superblock, &descriptors)?;
    write_backups(out, superblock)?;
    out.flush()?;
    write_superblock(out, superblock)?;
    out.flush()
}

/// Creates the descriptors, without the checksums of bitmaps.
fn describe(options: &MkfsOptions, superblock: &Superblock, layout: &Layout) -> Vec<GroupDesc> {
    let geometry = superblock.geometry();
    let may_be_uninit = superblock.checksums() != Checksums::None;
    let zeroed = options.inode_tables == InodeTables::Zeroed || options.contents == Contents::Zeros;
    let groups = (0..geometry.group_count()).map(Group);
    groups
        .zip(&layout.tables)
        .map(|(group, tables)| {
            let blocks = geometry.blocks_in_group(group).unwrap_or(0);
            let free_blocks = (blocks - layout.used_blocks_in(group)) >> geometry.cluster_bits();
            let used_inodes = layout.used_inodes_in(group);
            let free_inodes = geometry.inodes_per_group() - used_inodes;
            let mut desc = GroupDesc {
                block_bitmap: Block(tables.block_bitmap),
                inode_bitmap: Block(tables.inode_bitmap),
                inode_table: Block(tables.inode_table),
                free_blocks,
                free_inodes,
                used_dirs: layout.directories_in(group),
                itable_unused: if may_be_uninit { free_inodes } else { 0 },
                flags: GroupFlags::empty(),
                block_bitmap_csum: 0,
                inode_bitmap_csum: 0,
                exclude_bitmap: Block(0),
            };
            desc.flags.set(GroupFlags::INODE_ZEROED, zeroed);
            desc.flags.set(GroupFlags::INODE_UNINIT, may_be_uninit && used_inodes == 0);
            let computable = may_be_uninit && is_computable(&geometry, group, &desc);
            desc.flags.set(GroupFlags::BLOCK_UNINIT, computable);
            desc
        })
        .collect()
}

/// Returns whether the block bitmap of a group need not be written, because the group contains only
/// its own metadata. The last group's bitmap is always written, because e2fsck checks the bits
/// after the group's end.
fn is_computable(geometry: &Geometry, group: Group, desc: &GroupDesc) -> bool {
    let own = Bitmap::uninitialised_blocks(group, desc.metadata(geometry), geometry);
    group.0 + 1 < geometry.group_count()
        && own.is_ok_and(|own| own.count_clear() == desc.free_blocks)
}

fn write_bitmaps(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    layout: &Layout,
    descriptors: &mut [GroupDesc],
) -> Result<(), MkfsError> {
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    let mut bytes = vec![0; geometry.block_size().bytes()];
    for (group, desc) in (0..).map(Group).zip(descriptors) {
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let range = group_range(&geometry, group);
            let bit = |block: u64| ((block - range.start) >> geometry.cluster_bits()) as u32;
            let mut bitmap = Bitmap::new(bit(range.end));
            for run in layout.used.used_in(range.clone()) {
                bitmap.fill(bit(run.start)..bit(run.end));
            }
            bitmap.encode_blocks_into(&mut bytes, desc, &geometry, checksums);
            out.write(desc.block_bitmap.0, &bytes)?;
        }
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let mut bitmap = Bitmap::new(geometry.inodes_per_group());
            bitmap.fill(0..layout.used_inodes_in(group));
            bitmap.encode_inodes_into(&mut bytes, desc, &geometry, checksums);
            out.write(desc.inode_bitmap.0, &bytes)?;
        }
    }
    Ok(())
}

/// Zeroes each table whose descriptor says that the table is zeroed. Without descriptor checksums,
/// a later mount cannot recognise that a table was not zeroed, so in this case all tables are
/// zeroed.
fn zero_tables(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    descriptors: &[GroupDesc],
) -> Result<(), MkfsError> {
    let geometry = superblock.geometry();
    let all = superblock.checksums() == Checksums::None;
    for desc in descriptors {
        if all || desc.flags.contains(GroupFlags::INODE_ZEROED) {
            out.zero(desc.inode_table.0, geometry.itable_blocks().into())?;
        }
    }
    Ok(())
}

fn write_descriptors(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    descriptors: &[GroupDesc],
) -> Result<(), MkfsError> {
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    let per_block = geometry.descs_per_block() as usize;
    let with_super = groups_with_super(&geometry);
    let mut bytes = vec![0; geometry.block_size().bytes()];
    for (index, chunk) in (0u32..).zip(descriptors.chunks(per_block)) {
        bytes.fill(0);
        let places = bytes.chunks_exact_mut(geometry.desc_size());
        let groups = (index * geometry.descs_per_block()..).map(Group);
        for ((desc, bytes), group) in chunk.iter().zip(places).zip(groups) {
            desc.encode_into(bytes, group, &geometry, checksums);
            // The new descriptors are checked as if they had been read from a device.
            let _: GroupDesc = GroupDesc::decode(bytes, group, &geometry, checksums)?;
        }
        for place in descriptor_copies(&geometry, &with_super, index) {
            out.write(place.0, &bytes)?;
        }
    }
    Ok(())
}

fn groups_with_super(geometry: &Geometry) -> Vec<Group> {
    let groups = (0..geometry.group_count()).map(Group);
    groups.filter(|&group| geometry.group_has_super(group)).collect()
}

/// Writes the backups of the superblock. They are not marked clean, because a file system that is
/// restored from a backup must be checked first.
fn write_backups(out: &mut BlockWriter<'_>, superblock: &Superblock) -> Result<(), MkfsError> {
    let geometry = superblock.geometry();
    let mut bytes = vec![0; geometry.block_size().bytes()];
    for group in groups_with_super(&geometry).into_iter().skip(1) {
        let mut raw = superblock.raw().clone();
        raw.s_block_group_nr.set(u16::try_from(group.0).unwrap_or(u16::MAX));
        let mut backup = Superblock::from_raw(raw)?;
        backup.set_state(State::empty());
        bytes[..1024].copy_from_slice(&backup.encode());
        let first = geometry.group_first_block(group).unwrap_or_default();
        out.write(first.0, &bytes)?;
    }
    Ok(())
}

fn write_superblock(out: &mut BlockWriter<'_>, superblock: &Superblock) -> Result<(), MkfsError> {
    let geometry = superblock.geometry();
    let mut superblock = superblock.clone();
    superblock.set_kbytes_written(out.written() / 1024);
    let bytes = superblock.encode();
    let _: Superblock = Superblock::decode(&bytes).map_err(|error: Corruption| error)?;
    let mut block = vec![0; geometry.block_size().bytes()];
    let at = if block.len() == 1024 { 0 } else { 1024 };
    block[at..at + 1024].copy_from_slice(&bytes);
    out.write(geometry.super_block().0, &block)
}
