//! The files that every file system has: root, `lost+found`, resize inode, journal, orphan file.

use super::blocks::BlockWriter;
use crate::mkfs::layout::{File, Layout, ORPHAN_FILE};
use crate::mkfs::{MkfsError, MkfsOptions, resize};
use lanefs_ondisk::dirent::{self, DirFormat};
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::inode::{Inode, InodeFlags};
use lanefs_ondisk::jbd2::JournalSuperblock;
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::superblock::Superblock;
use lanefs_ondisk::{Block, FileType, Ino, Time, extent};
use std::collections::BTreeMap;

const BAD_BLOCKS: Ino = Ino(1);

pub(super) fn write(
    out: &mut BlockWriter<'_>,
    options: &MkfsOptions,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<(), MkfsError> {
    write_directories(out, superblock, layout)?;
    if let Some(pointers) = layout.resize {
        for (place, bytes) in resize::blocks(&superblock.geometry(), pointers) {
            out.write(place, &bytes)?;
        }
    }
    if let Some(journal) = &layout.journal {
        write_nodes(out, superblock, layout, Ino::JOURNAL, journal)?;
        write_journal(out, superblock, journal)?;
    }
    if let Some(orphans) = &layout.orphans {
        write_nodes(out, superblock, layout, ORPHAN_FILE, orphans)?;
        write_orphans(out, superblock, orphans)?;
    }
    write_inodes(out, options, superblock, layout)
}

fn write_directories(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<(), MkfsError> {
    let geometry = superblock.geometry();
    let features = geometry.features();
    let format = DirFormat {
        block_size: geometry.block_size(),
        has_file_types: features.incompat.contains(Incompat::FILETYPE),
        has_checksums: features.ro_compat.contains(RoCompat::METADATA_CSUM),
        has_large_dirs: false,
        inodes: geometry.inode_count(),
    };
    let lost_and_found = geometry.first_ino();
    let seal = |ino: Ino, block: &mut [u8]| {
        if let Some(seed) = superblock.checksums().seed() {
            dirent::seal(&format, seed.of_inode(ino, 0), block);
        }
    };
    let mut root = dirent::new_directory(&format, Ino::ROOT, Ino::ROOT);
    let name = dirent::Name::new(b"lost+found").expect("a name");
    let entry = dirent::Packed { ino: lost_and_found, file_type: Some(FileType::Directory), name };
    let room = dirent::insert(&format, &mut root, &entry);
    assert!(matches!(room, Ok(Some(_))), "a new directory has room");
    seal(Ino::ROOT, &mut root);
    for place in layout.root.places() {
        out.write(place, &root)?;
    }
    let mut block = dirent::new_directory(&format, lost_and_found, Ino::ROOT);
    for place in layout.lost_and_found.places() {
        seal(lost_and_found, &mut block);
        out.write(place, &block)?;
        dirent::clear(&format, &mut block);
    }
    Ok(())
}

fn write_nodes(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    layout: &Layout,
    ino: Ino,
    file: &File,
) -> Result<(), MkfsError> {
    for (place, mut bytes) in layout.leaf_nodes(file) {
        if let Some(seed) = superblock.checksums().seed() {
            extent::seal(&mut bytes, seed.of_inode(ino, 0));
        }
        out.write(place, &bytes)?;
    }
    Ok(())
}

/// Zeroes the log too: it must not contain transactions of an earlier file system.
fn write_journal(
    out: &mut BlockWriter<'_>,
    superblock: &Superblock,
    journal: &File,
) -> Result<(), MkfsError> {
    let block_size = superblock.geometry().block_size();
    for extent in &journal.extents {
        out.zero(extent.block.0, extent.len.into())?;
    }
    let log = JournalSuperblock::new(block_size, journal.blocks(), superblock.uuid());
    let mut bytes = vec![0; block_size.bytes()];
    bytes[..1024].copy_from_slice(&log.encode());
    journal.places().take(1).try_for_each(|place| out.write(place, &bytes))
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

fn write_inodes(
    out: &mut BlockWriter<'_>,
    options: &MkfsOptions,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<(), MkfsError> {
    let geometry = superblock.geometry();
    let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for ino in (1..=layout.used_inodes()).map(Ino) {
        let inode = make_inode(ino, options, superblock, layout);
        let Some(place) = geometry.inode_place(ino) else { continue };
        let Some(tables) = layout.tables.get(place.group.0 as usize) else { continue };
        let block = blocks
            .entry(tables.inode_table + u64::from(place.table_block))
            .or_insert_with(|| vec![0; geometry.block_size().bytes()]);
        let bytes = &mut block[place.offset..place.offset + geometry.inode_size()];
        inode
            .encode_into(bytes, ino, &geometry, superblock.checksums())
            .map_err(|_| MkfsError::TooLarge { blocks: geometry.block_count() })?;
    }
    blocks.into_iter().try_for_each(|(place, bytes)| out.write(place, &bytes))
}

fn make_inode(ino: Ino, options: &MkfsOptions, superblock: &Superblock, layout: &Layout) -> Inode {
    let geometry = superblock.geometry();
    let time = Time { secs: superblock.write_time() as i64, nanos: 0 };
    let of_file = |mode: u16, links: u16, file: &File| {
        let mut inode = in_use(mode, links, time, superblock);
        inode.size = u64::from(file.blocks()) << geometry.block_size().bits();
        inode.sectors = sectors(superblock, u64::from(file.blocks()) + file.nodes.len() as u64);
        inode.flags = InodeFlags::EXTENTS;
        inode.block = layout.root_node(file);
        inode
    };
    match (ino, &layout.journal, &layout.orphans, layout.resize) {
        (BAD_BLOCKS, ..) => Inode { atime: time, ctime: time, mtime: time, ..Inode::zeroed(0) },
        (Ino::ROOT, ..) => Inode {
            uid: options.root_owner.0,
            gid: options.root_owner.1,
            ..of_file(0o40755, 3, &layout.root)
        },
        (Ino::JOURNAL, Some(journal), ..) => of_file(0o100600, 1, journal),
        (resize::INO, _, _, Some(pointers)) => Inode {
            size: resize::size(&geometry),
            sectors: sectors(superblock, resize::block_count(&geometry)),
            block: resize::block_field(pointers),
            ..in_use(0o100600, 1, time, superblock)
        },
        (ORPHAN_FILE, _, Some(orphans), _) => of_file(0o100600, 1, orphans),
        _ if ino == geometry.first_ino() => of_file(0o40700, 2, &layout.lost_and_found),
        _ => Inode::zeroed(0),
    }
}

fn in_use(mode: u16, links: u16, time: Time, superblock: &Superblock) -> Inode {
    let blank = Inode::zeroed(superblock.extra_isize());
    let crtime = blank.crtime.map(|_| time);
    Inode { mode, links, atime: time, ctime: time, mtime: time, crtime, ..blank }
}

fn sectors(superblock: &Superblock, blocks: u64) -> u64 {
    blocks << (superblock.geometry().block_size().bits() - 9)
}
