//! Writes the inodes of all files, and the files outside of the tree: resize inode, journal, orphan
//! file.

use crate::layout::{File, Layout, ORPHAN_FILE, ino_of};
use crate::report::MkfsError;
use crate::resize;
use crate::write::contents::ReadyInode;
use crate::write::format::BlockWriter;
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::inode::{Inode, InodeFlags};
use lanefs_ondisk::jbd2::JournalSuperblock;
use lanefs_ondisk::mmp::{Mmp, Use};
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::superblock::Superblock;
use lanefs_ondisk::{Block, Corruption, Ino, Time, extent};

const BAD_BLOCKS: Ino = Ino(1);

pub(crate) fn write(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    layout: &Layout,
    inodes: &[ReadyInode],
) -> Result<(), MkfsError> {
    if let Some(pointers) = layout.resize {
        for (place, bytes) in resize::blocks(&superblock.geometry(), pointers) {
            out.write(place, &bytes)?;
        }
    }
    if let Some(journal) = &layout.journal {
        write_nodes(out, superblock, layout, Ino::JOURNAL, journal)?;
        write_journal(out, superblock, journal, layout.fast_commit_blocks)?;
    }
    if let Some(block) = superblock.mmp_block() {
        write_mmp(out, superblock, block)?;
    }
    if let Some(orphans) = &layout.orphans {
        write_nodes(out, superblock, layout, ORPHAN_FILE, orphans)?;
        write_orphans(out, superblock, orphans)?;
    }
    write_inodes(out, superblock, layout, inodes)
}

fn write_nodes(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    layout: &Layout,
    ino: Ino,
    file: &File,
) -> Result<(), MkfsError> {
    let has_extents = superblock.features().incompat.contains(Incompat::EXTENTS);
    for (place, mut bytes) in layout.leaf_nodes(file) {
        if let Some(seed) = superblock.checksums().seed().filter(|_| has_extents) {
            extent::seal(&mut bytes, seed.of_inode(ino, 0));
        }
        out.write(place, &bytes)?;
    }
    Ok(())
}

/// Zeroes the journal, so that the log contains no transactions of an earlier file system, and
/// writes the journal superblock.
fn write_journal(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    journal: &File,
    fast_commit_blocks: u32,
) -> Result<(), MkfsError> {
    let block_size = superblock.geometry().block_size();
    for extent in &journal.extents {
        out.zero(extent.block.0, extent.len.into())?;
    }
    let log = JournalSuperblock::new(block_size, journal.blocks(), superblock.uuid())
        .with_fast_commit_blocks(fast_commit_blocks);
    let mut bytes = vec![0; block_size.bytes()];
    bytes[..1024].copy_from_slice(&log.encode());
    journal.places().take(1).try_for_each(|place| out.write(place, &bytes))
}

fn write_mmp(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    block: Block,
) -> Result<(), MkfsError> {
    let unused = Mmp {
        state: Use::Clean,
        time: superblock.write_time(),
        node: Vec::new(),
        device: Vec::new(),
        check_interval: superblock.mmp_update_interval().max(5),
    };
    let mut bytes = vec![0; superblock.geometry().block_size().bytes()];
    let encoded = unused.encode_into(&mut bytes, superblock.checksums());
    encoded.map_err(|cause| Corruption::Mmp { block, cause })?;
    out.write(block.0, &bytes)
}

fn write_orphans(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    orphans: &File,
) -> Result<(), MkfsError> {
    let seed = OrphanSeed::new(superblock.checksums(), ORPHAN_FILE, 0);
    let empty = OrphanBlock::empty(superblock.geometry().block_size());
    orphans.places().try_for_each(|place| out.write(place, &empty.encode(Block(place), seed)))
}

/// Writes the inodes in the order of their numbers, so that the blocks of the inode tables are
/// written one after another.
fn write_inodes(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    layout: &Layout,
    inodes: &[ReadyInode],
) -> Result<(), MkfsError> {
    let geometry = superblock.geometry();
    let too_large = || MkfsError::TooLarge { blocks: geometry.block_count() };
    let mut block = vec![0; geometry.block_size().bytes()];
    let mut open: Option<u64> = None;
    let mut of_tree = numbered(layout, inodes).peekable();
    for ino in (1..=layout.used_inodes()).map(Ino) {
        let place = geometry.inode_place(ino).ok_or_else(too_large)?;
        let tables = layout.tables.get(place.group.0 as usize).ok_or_else(too_large)?;
        let target = tables.inode_table + u64::from(place.table_block);
        if let Some(before) = open.replace(target)
            && before != target
        {
            out.write(before, &block)?;
            block.fill(0);
        }
        let bytes = &mut block[place.offset..place.offset + geometry.inode_size()];
        let ready = of_tree.next_if(|(of, _)| *of == ino).map(|(_, ready)| ready);
        if let Some(ready) = ready {
            let area = 128 + usize::from(ready.inode.extra_isize);
            bytes[area..area + ready.attributes.len()].copy_from_slice(&ready.attributes);
        }
        let reserved = || make_reserved(ino, superblock, layout);
        let inode = ready.map_or_else(reserved, |ready| ready.inode.clone());
        inode
            .encode_into(bytes, ino, &geometry, superblock.checksums())
            .map_err(|_| too_large())?;
    }
    open.map_or(Ok(()), |last| out.write(last, &block))
}

/// Returns the inodes of the tree with their numbers.
fn numbered<'i>(
    layout: &Layout,
    inodes: &'i [ReadyInode],
) -> impl Iterator<Item = (Ino, &'i ReadyInode)> {
    let with_orphan_file = layout.orphans.is_some();
    (0..).zip(inodes).map(move |(index, ready)| (ino_of(index, with_orphan_file), ready))
}

/// Creates the reserved inode `ino` or the inode of the orphan file. These are not in the tree.
fn make_reserved(ino: Ino, superblock: &Superblock, layout: &Layout) -> Inode {
    let geometry = superblock.geometry();
    let time = Time { secs: superblock.write_time() as i64, nanos: 0 };
    let of_file = |mode: u16, links: u16, file: &File| {
        let mut inode = in_use(mode, links, time, superblock);
        inode.size = u64::from(file.blocks()) << geometry.block_size().bits();
        let data = geometry.clusters().holding(file.blocks());
        inode.sectors = sectors(superblock, u64::from(data) + file.nodes.len() as u64);
        let has_extents = superblock.features().incompat.contains(Incompat::EXTENTS);
        inode.flags.set(InodeFlags::EXTENTS, has_extents);
        inode.block = layout.root_node(file);
        inode
    };
    match (ino, &layout.journal, &layout.orphans, layout.resize) {
        (BAD_BLOCKS, ..) => Inode { atime: time, ctime: time, mtime: time, ..Inode::zeroed(0) },
        (Ino::JOURNAL, Some(journal), ..) => of_file(0o100600, 1, journal),
        (resize::INO, _, _, Some(pointers)) => Inode {
            size: resize::size(&geometry),
            sectors: sectors(superblock, resize::block_count(&geometry)),
            block: resize::block_field(pointers),
            ..in_use(0o100600, 1, time, superblock)
        },
        (ORPHAN_FILE, _, Some(orphans), _) => of_file(0o100600, 1, orphans),
        _ => Inode::zeroed(0),
    }
}

fn in_use(mode: u16, links: u16, time: Time, superblock: &Superblock) -> Inode {
    let blank = Inode::zeroed(superblock.extra_isize());
    let crtime = blank.crtime.map(|_| time);
    Inode { mode, links, atime: time, ctime: time, mtime: time, crtime, ..blank }
}

/// Returns the number of sectors of `clusters` clusters.
fn sectors(superblock: &Superblock, clusters: u64) -> u64 {
    let geometry = superblock.geometry();
    clusters << (geometry.block_size().bits() + geometry.cluster_bits() - 9)
}
