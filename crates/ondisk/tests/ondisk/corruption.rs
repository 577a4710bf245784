//! Tests one corruption for each check. A test damages one part of an image made by mke2fs, and
//! corrects the checksums.

use crate::image;

use crate::image::Image;
use lanefs_ondisk::bitmap::{self, Bitmap};
use lanefs_ondisk::checksum::{Checksums, Seed};
use lanefs_ondisk::group_desc::{self, GroupDesc};
use lanefs_ondisk::inode::{self, Inode, InodeFlags};
use lanefs_ondisk::superblock::{self, Geometry, Superblock};
use lanefs_ondisk::{Block, Corruption, Group, Ino};
use proptest::prelude::*;
use std::sync::LazyLock;

/// An image with blocks of 1 KiB, several groups, and all current features.
static IMAGE: LazyLock<Option<Image>> = LazyLock::new(|| image::make("-t ext4", "40M"));

fn good() -> Option<(&'static Image, Superblock)> {
    let image = IMAGE.as_ref()?;
    Some((image, Superblock::decode(&image.bytes[1024..2048]).expect("superblock")))
}

/// Stores `value`, little endian and `len` bytes long, at byte `at` of a valid superblock. Returns
/// the cause of the error with which the changed superblock is refused.
fn superblock_with(at: usize, len: usize, value: u64) -> Option<superblock::Cause> {
    let (image, _) = good()?;
    let mut bytes = image.bytes[1024..2048].to_vec();
    bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    let sum = Seed::START.chain(&bytes[..1020]).value();
    bytes[1020..].copy_from_slice(&sum.to_le_bytes());
    match Superblock::decode(&bytes) {
        Err(Corruption::Superblock { cause }) => Some(cause),
        other => panic!("{at:#x} = {value:#x}: {other:?}"),
    }
}

#[test]
fn every_check_of_the_superblock_has_its_cause() {
    use superblock::Cause;
    for (at, len, value, cause) in [
        (0x38, 2, 0xef54, Cause::Magic { found: 0xef54 }),
        (0x4c, 4, 2, Cause::Revision { found: 2 }),
        (0x18, 4, 7, Cause::BlockSize { log: 7 }),
        (0x18, 4, u32::MAX.into(), Cause::BlockSize { log: u32::MAX }),
        (0x1c, 4, 1, Cause::ClusterSize { log: 1 }),
        (0x58, 2, 192, Cause::InodeSize { size: 192 }),
        (0x58, 2, 2048, Cause::InodeSize { size: 2048 }),
        (0x54, 4, 10, Cause::FirstInode { ino: 10 }),
        (0x54, 4, 1 << 20, Cause::FirstInode { ino: 1 << 20 }),
        (0xfe, 2, 32, Cause::DescSize { size: 32 }),
        (0xfe, 2, 96, Cause::DescSize { size: 96 }),
        (0x20, 4, 0, Cause::BlocksPerGroup { blocks: 0, clusters: 8192 }),
        (0x24, 4, 8200, Cause::BlocksPerGroup { blocks: 8192, clusters: 8200 }),
        (0x28, 4, 0, Cause::InodesPerGroup { inodes: 0 }),
        (0x28, 4, 8200, Cause::InodesPerGroup { inodes: 8200 }),
        (0x14, 4, 0, Cause::FirstDataBlock { block: 0 }),
        (0x04, 4, 1, Cause::BlockCount { blocks: 1 }),
        (0x150, 4, 1 << 16, Cause::BlockCount { blocks: (1 << 48) + 40960 }),
        (0x150, 4, 1, Cause::InodeCount { inodes: 10240, groups: 524_293 }),
        (0x00, 4, 10241, Cause::InodeCount { inodes: 10241, groups: 5 }),
        (0xce, 2, 257, Cause::ReservedDescriptors { blocks: 257 }),
        (0x0c, 4, 40961, Cause::FreeBlocks { blocks: 40961 }),
        (0x08, 4, 40961, Cause::ReservedBlocks { blocks: 40961 }),
        (0x10, 4, 10241, Cause::FreeInodes { inodes: 10241 }),
        (0xe0, 4, 0, Cause::JournalPlace { ino: 0, device: 0 }),
        (0xe0, 4, 10241, Cause::JournalPlace { ino: 10241, device: 0 }),
        (0xe4, 4, 9, Cause::JournalPlace { ino: 8, device: 9 }),
        (0x280, 4, 0, Cause::OrphanFileInode { ino: 0 }),
        (0xe8, 4, 10241, Cause::LastOrphan { ino: 10241 }),
        (0x175, 1, 2, Cause::ChecksumType { found: 2 }),
    ] {
        let Some(found) = superblock_with(at, len, value) else { return };
        assert_eq!(found, cause, "{at:#x} = {value:#x}");
    }
}

#[test]
fn a_first_meta_group_beyond_all_descriptors_is_corruption() {
    let Some(image) = image::make("-t ext4 -O ^resize_inode,meta_bg", "40M") else { return };
    let mut bytes = image.bytes[1024..2048].to_vec();
    bytes[0x104] = 9;
    let sum = Seed::START.chain(&bytes[..1020]).value();
    bytes[1020..].copy_from_slice(&sum.to_le_bytes());
    let cause = superblock::Cause::FirstMetaGroup { first: 9 };
    assert_eq!(Superblock::decode(&bytes).unwrap_err(), Corruption::Superblock { cause });
}

#[test]
fn too_few_bytes_are_no_superblock() {
    let cause = superblock::Cause::Length { len: 1023 };
    assert_eq!(Superblock::decode(&[0; 1023]).unwrap_err(), Corruption::Superblock { cause });
}

fn group_one(image: &Image, superblock: &Superblock) -> GroupDesc {
    let geometry = superblock.geometry();
    let bytes = descriptor_bytes(image, &geometry);
    GroupDesc::decode(bytes, Group(1), &geometry, superblock.checksums()).expect("group 1")
}

fn descriptor_bytes<'i>(image: &'i Image, geometry: &Geometry) -> &'i [u8] {
    let (_, range) = geometry.desc_place(Group(1)).expect("group 1");
    &image.block(2, 1024)[range]
}

#[test]
fn every_check_of_a_descriptor_has_its_cause() {
    use group_desc::Cause;
    let Some((image, superblock)) = good() else { return };
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    let desc = group_one(image, &superblock);
    let end = Block(geometry.block_count());
    for (bad, cause) in [
        (GroupDesc { block_bitmap: end, ..desc }, Cause::BlockBitmapPlace { block: end }),
        (GroupDesc { block_bitmap: Block(2), ..desc }, Cause::BlockBitmapPlace { block: Block(2) }),
        (GroupDesc { inode_bitmap: Block(0), ..desc }, Cause::InodeBitmapPlace { block: Block(0) }),
        (
            GroupDesc { inode_table: Block(end.0 - 1), ..desc },
            Cause::InodeTablePlace { block: Block(end.0 - 1) },
        ),
        (
            GroupDesc { inode_table: Block(u64::MAX), ..desc },
            Cause::InodeTablePlace { block: Block(u64::MAX) },
        ),
        (GroupDesc { inode_bitmap: desc.block_bitmap, ..desc }, Cause::Overlap),
        (GroupDesc { inode_bitmap: Block(desc.inode_table.0 + 1), ..desc }, Cause::Overlap),
        (GroupDesc { free_blocks: 8193, ..desc }, Cause::FreeBlocks { blocks: 8193 }),
        (GroupDesc { free_inodes: 2049, ..desc }, Cause::FreeInodes { inodes: 2049 }),
        (GroupDesc { used_dirs: 2049, ..desc }, Cause::UsedDirs { directories: 2049 }),
        (GroupDesc { itable_unused: 2049, ..desc }, Cause::ItableUnused { inodes: 2049 }),
    ] {
        let mut bytes = descriptor_bytes(image, &geometry).to_vec();
        bad.encode_into(&mut bytes, Group(1), &geometry, checksums);
        let found = GroupDesc::decode(&bytes, Group(1), &geometry, checksums).unwrap_err();
        assert_eq!(found, Corruption::GroupDescriptor { group: Group(1), cause });
    }
}

#[test]
fn a_descriptor_of_another_group_is_corruption() {
    for options in ["-t ext4", "-t ext4 -O ^metadata_csum,uninit_bg"] {
        let Some(image) = image::make(options, "40M") else { return };
        let superblock = Superblock::decode(&image.bytes[1024..2048]).expect("superblock");
        let geometry = superblock.geometry();
        let bytes = descriptor_bytes(&image, &geometry);
        let checksums = superblock.checksums();
        let found = GroupDesc::decode(bytes, Group(2), &geometry, checksums).unwrap_err();
        assert!(matches!(
            found,
            Corruption::GroupDescriptor {
                group: Group(2),
                cause: group_desc::Cause::Checksum { .. }
            }
        ));
        let found = GroupDesc::decode(&bytes[..31], Group(1), &geometry, checksums).unwrap_err();
        let cause = group_desc::Cause::Length { len: 31 };
        assert_eq!(found, Corruption::GroupDescriptor { group: Group(1), cause });
        let found = GroupDesc::decode(bytes, Group(9999), &geometry, Checksums::None).unwrap_err();
        let cause = group_desc::Cause::NoSuchGroup;
        assert_eq!(found, Corruption::GroupDescriptor { group: Group(9999), cause });
    }
}

#[test]
fn without_flex_bg_bitmaps_lie_in_their_own_group() {
    let Some(image) = image::make("-t ext4 -O ^flex_bg", "40M") else { return };
    let superblock = Superblock::decode(&image.bytes[1024..2048]).expect("superblock");
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    let block = Block(2 * 8192 + 2000);
    let bad = GroupDesc { block_bitmap: block, ..group_one(&image, &superblock) };
    let mut bytes = descriptor_bytes(&image, &geometry).to_vec();
    bad.encode_into(&mut bytes, Group(1), &geometry, checksums);
    let found = GroupDesc::decode(&bytes, Group(1), &geometry, checksums).unwrap_err();
    let cause = group_desc::Cause::BlockBitmapPlace { block };
    assert_eq!(found, Corruption::GroupDescriptor { group: Group(1), cause });
}

#[test]
fn every_check_of_an_inode_has_its_cause() {
    use inode::Cause;
    let Some((_, superblock)) = good() else { return };
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    let file = Inode { mode: 0o100644, links: 1, ..Inode::zeroed(32) };
    let folder = Inode { mode: 0o40755, ..file.clone() };
    let end = Block(geometry.block_count());
    let huge = geometry.max_file_size() + 1;
    for (bad, cause) in [
        (Inode { mode: 0o30644, ..file.clone() }, Cause::Mode { mode: 0o30644 }),
        (Inode { size: huge, ..file.clone() }, Cause::Size { size: huge }),
        (Inode { size: u64::MAX, ..file.clone() }, Cause::Size { size: u64::MAX }),
        (Inode { file_acl: Some(end), ..file.clone() }, Cause::FileAcl { block: end }),
        (Inode { size: 1025, ..folder.clone() }, Cause::DirectorySize { size: 1025 }),
        (Inode { mode: 0o120777, size: 1025, ..file.clone() }, Cause::SymlinkSize { size: 1025 }),
    ] {
        let mut bytes = [0; 256];
        bad.encode_into(&mut bytes, Ino(20), &geometry, checksums).expect("fits");
        let found = Inode::decode(&bytes, Ino(20), &geometry, checksums).unwrap_err();
        assert_eq!(found, Corruption::Inode { ino: Ino(20), cause });
    }
    let inode_error =
        |bytes: &[u8], ino| match Inode::decode(bytes, ino, &geometry, Checksums::None) {
            Err(Corruption::Inode { cause, .. }) => cause,
            other => panic!("{other:?}"),
        };
    for size in [30, 132, u16::MAX] {
        let mut bytes = [0; 256];
        bytes[128..130].copy_from_slice(&size.to_le_bytes());
        assert_eq!(inode_error(&bytes, Ino(20)), Cause::ExtraSize { size });
    }
    assert_eq!(inode_error(&[0; 255], Ino(20)), Cause::Length { len: 255 });
    assert_eq!(inode_error(&[0; 256], Ino(0)), Cause::NoSuchInode);
    assert_eq!(inode_error(&[0; 256], Ino(10241)), Cause::NoSuchInode);
}

#[test]
fn space_is_kept_in_the_unit_that_fits() {
    let Some((_, superblock)) = good() else { return };
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    let read_back = |sectors: u64, flags: InodeFlags| {
        let file = Inode { mode: 0o100644, links: 1, sectors, flags, ..Inode::zeroed(32) };
        let mut bytes = [0; 256];
        file.encode_into(&mut bytes, Ino(20), &geometry, checksums)?;
        Ok(Inode::decode(&bytes, Ino(20), &geometry, checksums).expect("inode"))
    };
    let small = read_back((1 << 48) - 1, InodeFlags::empty()).expect("fits");
    assert_eq!((small.sectors, small.flags), ((1 << 48) - 1, InodeFlags::empty()));
    let large = read_back(1 << 48, InodeFlags::empty()).expect("fits");
    assert_eq!((large.sectors, large.flags), (1 << 48, InodeFlags::HUGE_FILE));
    // An inode that counts its allocated space in blocks instead of sectors keeps this unit if the
    // space is a whole number of blocks.
    let kept = read_back(8, InodeFlags::HUGE_FILE).expect("fits");
    assert_eq!((kept.sectors, kept.flags), (8, InodeFlags::HUGE_FILE));
    let odd = read_back(7, InodeFlags::HUGE_FILE).expect("fits");
    assert_eq!((odd.sectors, odd.flags), (7, InodeFlags::empty()));
    let error: inode::TooLarge = read_back(1 << 49, InodeFlags::empty()).unwrap_err();
    assert_eq!(error, inode::TooLarge::Blocks { sectors: 1 << 49 });
}

#[test]
fn encoding_an_inode_leaves_its_attributes_alone() {
    let Some((_, superblock)) = good() else { return };
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    let file = Inode { mode: 0o100644, links: 1, ..Inode::zeroed(32) };
    assert_eq!(file.xattr_area(&geometry), Some(160..256));
    let mut bytes = [0xab; 256];
    file.encode_into(&mut bytes, Ino(20), &geometry, checksums).expect("fits");
    assert!(bytes[160..].iter().all(|&b| b == 0xab));
    assert_eq!(Inode::decode(&bytes, Ino(20), &geometry, checksums), Ok(file));
}

#[test]
fn every_check_of_a_bitmap_has_its_cause() {
    use bitmap::Cause;
    let Some((image, superblock)) = good() else { return };
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    let (_, range) = geometry.desc_place(Group(0)).expect("group 0");
    let bytes = &image.block(2, 1024)[range];
    let desc = GroupDesc::decode(bytes, Group(0), &geometry, checksums).expect("group 0");
    let good = image.block(desc.block_bitmap.0, 1024);
    let decode = |bytes: &[u8], desc: &GroupDesc| match Bitmap::decode_blocks(
        bytes,
        Group(0),
        desc,
        &geometry,
        checksums,
    ) {
        Err(Corruption::Bitmap { group: Group(0), cause }) => Some(cause),
        Ok(_) => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(decode(good, &desc), None);
    assert_eq!(decode(&good[..1000], &desc), Some(Cause::Length { len: 1000 }));
    let mut bad = good.to_vec();
    bad[1000] ^= 1;
    assert!(matches!(decode(&bad, &desc), Some(Cause::Checksum { .. })));
    let count = GroupDesc { free_blocks: desc.free_blocks - 1, ..desc };
    assert_eq!(
        decode(good, &count),
        Some(Cause::FreeCount { clear: desc.free_blocks, free: desc.free_blocks - 1 })
    );
    let bit = (desc.inode_table.0 - 1) as u32;
    let mut bitmap = Bitmap::from_bytes(good, 8192);
    bitmap.clear(bit, 1).expect("was set");
    let (mut bad, mut wrong) = (vec![0; 1024], desc);
    bitmap.encode_blocks_into(&mut bad, &mut wrong, &geometry, checksums);
    wrong.free_blocks += 1;
    assert_eq!(decode(&bad, &wrong), Some(Cause::MetadataClear { bit }));
    let nowhere = Bitmap::uninitialised_blocks(Group(5), [], &geometry).unwrap_err();
    assert_eq!(nowhere, Corruption::Bitmap { group: Group(5), cause: Cause::NoSuchGroup });
}

/// Generates bytes that are mostly right, so that many of the checks pass before one fails.
fn mostly(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let len = good.len();
    prop::collection::vec((0..len, any::<u8>()), 0..12).prop_map(move |changes| {
        let mut bytes = good.clone();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes
    })
}

fn good_superblock() -> Vec<u8> {
    let bytes = IMAGE.as_ref().map_or(vec![0; 1024], |i| i.bytes[1024..2048].to_vec());
    // Clears metadata_csum. With this feature, every changed superblock would already fail at the
    // checksum check.
    [&bytes[..0x65], &[bytes[0x65] & !4], &bytes[0x66..]].concat()
}

proptest! {
    #[test]
    fn no_superblock_makes_the_geometry_panic(
        bytes in mostly(good_superblock()),
        numbers in prop::collection::vec(any::<u64>(), 8),
    ) {
        let Ok(superblock) = Superblock::decode(&bytes) else { return Ok(()) };
        let geometry = superblock.geometry();
        let checksums = superblock.checksums();
        let _ = (superblock.support(), superblock.extra_isize(), superblock.label());
        prop_assert_eq!(&superblock.encode()[..], &bytes[..]);
        for number in numbers.iter().flat_map(|&n| [n, n >> 32, n >> 48, n % geometry.block_count()]) {
            let (group, block, ino) = (Group(number as u32), Block(number), Ino(number as u32));
            let _ = (geometry.group_has_super(group), geometry.group_desc_blocks(group));
            let _ = (geometry.desc_block(group.0), geometry.desc_place(group));
            if let Some(place) = geometry.inode_place(ino) {
                prop_assert_eq!(geometry.ino_at(place.group, place.index), Some(ino));
                prop_assert!(place.table_block < geometry.itable_blocks());
            }
            if let Some((group, bit)) = geometry.group_of(block) {
                let found = geometry.block_at(group, bit).expect("block");
                prop_assert_eq!(found.0 >> geometry.cluster_bits(), block.0 >> geometry.cluster_bits());
                prop_assert!(bit < geometry.clusters_in_group(group).expect("group"));
            }
            let bytes = vec![number as u8; geometry.desc_size()];
            let _ = GroupDesc::decode(&bytes, group, &geometry, checksums);
        }
    }

    #[test]
    fn no_bytes_make_inodes_descriptors_or_bitmaps_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..1100),
        extra in prop::sample::select(vec![0u16, 4, 24, 28, 32, 96, 128]),
    ) {
        let Some((_, superblock)) = good() else { return Ok(()) };
        let geometry = superblock.geometry();
        let desc = group_one(IMAGE.as_ref().expect("image"), &superblock);
        for checksums in [Checksums::None, superblock.checksums()] {
            for len in [32, 64, 128, 256, 1024, bytes.len()] {
                let mut bytes = bytes.clone();
                bytes.resize(len, 7);
                if len == 256 {
                    bytes[128..130].copy_from_slice(&extra.to_le_bytes());
                }
                if let Ok(inode) = Inode::decode(&bytes, Ino(20), &geometry, checksums) {
                    let _ = (inode.fast_symlink(&geometry), inode.xattr_area(&geometry));
                    let _ = (inode.device_number(), inode.file_type());
                    let mut again = bytes.clone();
                    if inode.encode_into(&mut again, Ino(20), &geometry, checksums).is_ok() {
                        let second = Inode::decode(&again, Ino(20), &geometry, checksums);
                        prop_assert_eq!(second, Ok(inode));
                    }
                }
                let _ = GroupDesc::decode(&bytes, Group(1), &geometry, checksums);
                let _ = Bitmap::decode_blocks(&bytes, Group(1), &desc, &geometry, checksums);
                let _ = Bitmap::decode_inodes(&bytes, Group(1), &desc, &geometry, checksums);
            }
        }
    }
}
