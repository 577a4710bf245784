//! Tests the superblock, descriptors and inodes of images created by mke2fs.

use crate::image;

use crate::image::Image;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::features::Compat;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::inode::{self, Inode};
use lanefs_ondisk::superblock::{Geometry, SUPERBLOCK_SIZE, Superblock};
use lanefs_ondisk::{Corruption, FileType, Group, Ino};

fn superblock(image: &Image) -> Superblock {
    Superblock::decode(&image.bytes[1024..2048]).expect(&image.options)
}

fn descriptor_bytes<'i>(image: &'i Image, geometry: &Geometry, group: Group) -> &'i [u8] {
    let (index, range) = geometry.desc_place(group).expect("group");
    let block = geometry.desc_block(index).expect("descriptor block");
    &image.block(block.0, geometry.block_size().bytes())[range]
}

fn descriptors(image: &Image, superblock: &Superblock) -> Vec<GroupDesc> {
    let geometry = superblock.geometry();
    (0..geometry.group_count())
        .map(|g| {
            let bytes = descriptor_bytes(image, &geometry, Group(g));
            GroupDesc::decode(bytes, Group(g), &geometry, superblock.checksums())
                .expect(&image.options)
        })
        .collect()
}

fn inode_bytes<'i>(
    image: &'i Image,
    geometry: &Geometry,
    groups: &[GroupDesc],
    ino: Ino,
) -> &'i [u8] {
    let place = geometry.inode_place(ino).expect("inode");
    let table = groups[place.group.0 as usize].inode_table;
    let block = image.block(table.0 + u64::from(place.table_block), geometry.block_size().bytes());
    &block[place.offset..][..geometry.inode_size()]
}

#[test]
fn superblocks_and_their_backups_decode_and_keep_their_bytes() {
    for image in image::all() {
        let superblock = superblock(&image);
        assert_eq!(superblock.encode(), image.bytes[1024..2048], "{}", image.options);
        let geometry = superblock.geometry();
        assert_eq!(
            geometry.block_count() * geometry.block_size().bytes() as u64,
            image.bytes.len() as u64
        );
        for group in (1..geometry.group_count()).map(Group) {
            if geometry.group_has_super(group) {
                let first = geometry.group_first_block(group).expect("group");
                let bytes = image.block(first.0, geometry.block_size().bytes());
                let backup = Superblock::decode(bytes).expect("backup");
                assert_eq!(backup.uuid(), superblock.uuid());
                assert_eq!(u32::from(backup.raw().s_block_group_nr.get()), group.0);
            }
        }
    }
}

#[test]
fn descriptors_decode_add_up_and_keep_their_bytes() {
    for image in image::all() {
        let superblock = superblock(&image);
        let geometry = superblock.geometry();
        let groups = descriptors(&image, &superblock);
        let free: u64 = groups.iter().map(|g| u64::from(g.free_blocks)).sum();
        assert_eq!(free, superblock.free_blocks(), "{}", image.options);
        let inodes: u32 = groups.iter().map(|g| g.free_inodes).sum();
        assert_eq!(inodes, superblock.free_inodes(), "{}", image.options);
        for (g, desc) in groups.iter().enumerate() {
            let group = Group(g as u32);
            let old = descriptor_bytes(&image, &geometry, group);
            let mut new = old.to_vec();
            desc.encode_into(&mut new, group, &geometry, superblock.checksums());
            assert_eq!(new, old, "{}, {group}", image.options);
        }
    }
}

#[test]
fn every_inode_in_a_table_decodes_and_keeps_its_bytes() {
    for image in image::all() {
        let superblock = superblock(&image);
        let geometry = superblock.geometry();
        let checksums = superblock.checksums();
        let groups = descriptors(&image, &superblock);
        let (mut folders, mut fast, mut slow) = (0, 0, 0);
        for ino in (1..=geometry.inode_count()).map(Ino) {
            let place = geometry.inode_place(ino).expect("inode");
            let desc = &groups[place.group.0 as usize];
            if desc.flags.contains(GroupFlags::INODE_UNINIT)
                || place.index >= geometry.inodes_per_group() - desc.itable_unused
            {
                continue;
            }
            let old = inode_bytes(&image, &geometry, &groups, ino);
            let inode = Inode::decode(old, ino, &geometry, checksums).expect(&image.options);
            if old.iter().any(|&b| b != 0) {
                let mut new = old.to_vec();
                inode.encode_into(&mut new, ino, &geometry, checksums).expect("fits");
                assert_eq!(new, old, "{}, {ino}", image.options);
            }
            match inode.file_type() {
                Some(FileType::Directory) => folders += 1,
                Some(FileType::Symlink) if inode.fast_symlink(&geometry).is_some() => {
                    assert_eq!(inode.fast_symlink(&geometry), Some(&b"short"[..]));
                    fast += 1;
                }
                Some(FileType::Symlink) => slow += 1,
                _ => {}
            }
        }
        // The directories are the root, lost+found and the 30 directories of the tree. Of the two
        // symbolic links, one has its target in the inode (`fast`), and one has it in a block
        // (`slow`).
        assert_eq!((folders, fast, slow), (32, 1, 1), "{}", image.options);
        let used: u32 = groups.iter().map(|g| g.used_dirs).sum();
        assert_eq!(used, folders);
    }
}

#[test]
fn an_inode_belongs_to_its_number() {
    let Some(image) = image::make("-t ext4", "20M") else { return };
    let superblock = superblock(&image);
    let geometry = superblock.geometry();
    let groups = descriptors(&image, &superblock);
    let bytes = inode_bytes(&image, &geometry, &groups, Ino::ROOT);
    let root = Inode::decode(bytes, Ino::ROOT, &geometry, superblock.checksums()).expect("root");
    assert_eq!(root.mode, 0o40755);
    let error = Inode::decode(bytes, Ino(11), &geometry, superblock.checksums()).unwrap_err();
    assert!(matches!(
        error,
        Corruption::Inode { ino: Ino(11), cause: inode::Cause::Checksum { .. } }
    ));
}

#[test]
fn the_journal_and_the_orphan_file_are_where_the_superblock_says() {
    let Some(image) = image::make("-t ext4", "40M") else { return };
    let superblock = superblock(&image);
    assert!(superblock.features().compat.contains(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE));
    assert_eq!(superblock.orphan_file(), Some(Ino(12)));
    assert_eq!(
        superblock.journal(),
        Some(lanefs_ondisk::superblock::JournalPlace::Inode(Ino::JOURNAL))
    );
}

#[test]
fn one_flipped_bit_anywhere_in_a_checksummed_superblock_is_found() {
    let Some(image) = image::make("-t ext4", "20M") else { return };
    let good = &image.bytes[1024..2048];
    for byte in 0..SUPERBLOCK_SIZE {
        let mut bad = good.to_vec();
        bad[byte] ^= 0x10;
        assert!(Superblock::decode(&bad).is_err(), "byte {byte:#x}");
    }
}

#[test]
fn bitmaps_decode_agree_with_descriptors_and_keep_their_bytes() {
    for image in image::all() {
        let superblock = superblock(&image);
        let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
        let size = geometry.block_size().bytes();
        for (g, desc) in descriptors(&image, &superblock).iter().enumerate() {
            let group = Group(g as u32);
            let mut again = *desc;
            if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
                let old = image.block(desc.inode_bitmap.0, size);
                let bitmap = Bitmap::decode_inodes(old, group, desc, &geometry, checksums)
                    .expect(&image.options);
                let mut new = vec![0; size];
                bitmap.encode_inodes_into(&mut new, &mut again, &geometry, checksums);
                assert_eq!(new, old, "{}, inodes of {group}", image.options);
            }
            if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                let old = image.block(desc.block_bitmap.0, size);
                let bitmap = Bitmap::decode_blocks(old, group, desc, &geometry, checksums)
                    .expect(&image.options);
                let mut new = vec![0; size];
                bitmap.encode_blocks_into(&mut new, &mut again, &geometry, checksums);
                assert_eq!(new, old, "{}, blocks of {group}", image.options);
            } else {
                let bitmap =
                    Bitmap::uninitialised_blocks(group, desc.metadata(&geometry), &geometry)
                        .expect("group");
                assert_eq!(bitmap.count_clear(), desc.free_blocks, "{}", image.options);
            }
            assert_eq!(again, *desc, "{}, checksums of {group}", image.options);
        }
    }
}
