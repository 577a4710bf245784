//! Tests with images of the kinds that occur in practice: with few or many features, resized, or
//! changed by the kernel.

use crate::image;

use crate::image::{Image, mount};
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::features::{RoCompat, Support};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::superblock::Superblock;
use lanefs_ondisk::{Block, FileType, Group};
use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// Decodes all metadata at fixed positions, deleted inodes included. Returns the types of the
/// inodes in use.
fn decode_all(image: &Image) -> Vec<Option<FileType>> {
    let superblock = Superblock::decode(&image.bytes[1024..2048]).expect(&image.options);
    let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
    let size = geometry.block_size().bytes();
    let mut types = Vec::new();
    for group in (0..geometry.group_count()).map(Group) {
        let (index, range) = geometry.desc_place(group).expect("group");
        let block = geometry.desc_block(index).expect("descriptor block");
        let bytes = &image.block(block.0, size)[range];
        let desc = GroupDesc::decode(bytes, group, &geometry, checksums).expect(&image.options);
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bytes = image.block(desc.block_bitmap.0, size);
            Bitmap::decode_blocks(bytes, group, &desc, &geometry, checksums).expect(&image.options);
        }
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            continue;
        }
        let bytes = image.block(desc.inode_bitmap.0, size);
        let bitmap =
            Bitmap::decode_inodes(bytes, group, &desc, &geometry, checksums).expect(&image.options);
        for index in 0..geometry.inodes_per_group() - desc.itable_unused {
            let ino = geometry.ino_at(group, index).expect("inode");
            let place = geometry.inode_place(ino).expect("inode");
            let block = image.block(desc.inode_table.0 + u64::from(place.table_block), size);
            let bytes = &block[place.offset..][..geometry.inode_size()];
            let inode = Inode::decode(bytes, ino, &geometry, checksums).expect(&image.options);
            if bitmap.get(index) {
                types.push(inode.file_type());
            }
        }
    }
    types
}

#[test]
fn every_feature_that_mke2fs_makes_is_supported_or_named() {
    let read_only =
        |names: &[&str]| Support::ReadOnly(names.iter().map(|name| name.to_string()).collect());
    for (options, support) in [
        ("-t ext4", Support::ReadWrite),
        ("-t ext4 -b 8192", Support::ReadWrite),
        ("-t ext4 -b 65536", Support::ReadWrite),
        ("-t ext3", Support::ReadWrite),
        ("-t ext2", Support::ReadWrite),
        ("-t ext2 -r 0", Support::ReadWrite),
        ("-t ext4 -O ^extent,^64bit", Support::ReadWrite),
        ("-t ext4 -O sparse_super2", Support::ReadWrite),
        ("-t ext4 -O stable_inodes", Support::ReadWrite),
        ("-t ext4 -O fast_commit", Support::ReadWrite),
        ("-t ext4 -O ^resize_inode,meta_bg", Support::ReadWrite),
        ("-t ext4 -b 1024 -O bigalloc -C 16384", Support::ReadWrite),
        ("-t ext4 -b 4096 -O bigalloc", Support::ReadWrite),
        ("-t ext4 -O quota", Support::ReadWrite),
        ("-t ext4 -O quota,project", Support::ReadWrite),
        ("-t ext4 -O quota,ea_inode", read_only(&["quota with ea_inode"])),
        ("-t ext4 -O ea_inode", Support::ReadWrite),
        ("-t ext4 -O large_dir", Support::ReadWrite),
        ("-t ext4 -O mmp", Support::ReadWrite),
        ("-t ext4 -O verity", Support::ReadWrite),
        ("-t ext4 -O inline_data", Support::ReadWrite),
        ("-t ext4 -O encrypt", Support::ReadWrite),
        ("-t ext4 -O casefold", Support::ReadWrite),
    ] {
        let Some(image) = image::make(options, "40M") else { return };
        let superblock = Superblock::decode(&image.bytes[1024..2048]).expect(options);
        assert_eq!(superblock.support(), support, "{options}");
        decode_all(&image);
    }
}

/// Checks that all feature bits, known and unknown, have the same names and order as in dumpe2fs.
#[test]
fn feature_names_are_those_of_dumpe2fs() {
    let Some(image) = image::make("-t ext2", "8M") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    for bit in 0..32u32 {
        for word in [0x5c, 0x60, 0x64] {
            // Two bits are left out: dumpe2fs prints other text for a journal device, and does not
            // open an image that has the feature 64bit but a descriptor size of 0.
            if [(0x60, 3), (0x60, 7)].contains(&(word, bit)) {
                continue;
            }
            let mut bytes = image.bytes.clone();
            bytes[1024 + 0x5c..1024 + 0x68].fill(0);
            bytes[1024 + word..1024 + word + 4].copy_from_slice(&(1u32 << bit).to_le_bytes());
            fs::write(&path, &bytes).expect("the image");
            let output = Command::new("dumpe2fs").arg("-hf").arg(&path).output().expect("dumpe2fs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.lines().find_map(|line| line.strip_prefix("Filesystem features:"));
            let theirs = line.map(str::trim);
            let raw =
                |at: usize| u32::from_le_bytes(bytes[1024 + at..][..4].try_into().expect("word"));
            let features = lanefs_ondisk::features::Features {
                compat: lanefs_ondisk::features::Compat::from_bits_retain(raw(0x5c)),
                incompat: lanefs_ondisk::features::Incompat::from_bits_retain(raw(0x60)),
                ro_compat: lanefs_ondisk::features::RoCompat::from_bits_retain(raw(0x64)),
            };
            assert_eq!(theirs, Some(features.names().join(" ").as_str()), "{word:#x} {bit}");
        }
    }
}

#[test]
fn resized_images_decode() {
    for (options, sizes) in [
        ("-t ext4", ["200M", "30M"]),
        ("-t ext4 -b 4096", ["600M", "50M"]),
        ("-t ext4 -O ^resize_inode", ["300M", "40M"]),
        ("-t ext3", ["200M", "40M"]),
    ] {
        let Some(image) = image::make(options, "64M") else { return };
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = folder.path().join("image");
        fs::write(&path, &image.bytes).expect("the image");
        for size in sizes {
            let checked = Command::new("e2fsck").args(["-fp"]).arg(&path).output();
            assert!(checked.expect("e2fsck").status.success());
            let resized = Command::new("resize2fs").arg(&path).arg(size).output();
            let resized = resized.expect("resize2fs");
            assert!(resized.status.success(), "{resized:?}");
            let bytes = fs::read(&path).expect("the image");
            decode_all(&Image { options: format!("{options} to {size}"), bytes });
        }
    }
}

/// Creates files of all types, and deletes some of them. One file gets an attribute inside of the
/// inode and one outside.
fn busy(root: &Path) -> io::Result<()> {
    let file = |name: String, len: usize| fs::write(root.join(name), vec![7; len]);
    for n in 0..400 {
        file(format!("file {n}"), n * 37)?;
    }
    for n in (0..400).step_by(3) {
        fs::remove_file(root.join(format!("file {n}")))?;
    }
    let large = fs::File::create(root.join("large"))?;
    large.set_len(1 << 33)?;
    for (kind, name) in [("c", "character"), ("b", "block")] {
        Command::new("mknod").arg(root.join(name)).args([kind, "300", "70000"]).status()?;
    }
    Command::new("mkfifo").arg(root.join("fifo")).status()?;
    for (name, len) in [("in", 20), ("out", 700)] {
        let value = "v".repeat(len);
        Command::new("setfattr")
            .args(["-n", &format!("user.{name}"), "-v", &value])
            .arg(root.join("file 1"))
            .status()
            .ok();
    }
    std::os::unix::fs::symlink("s".repeat(700), root.join("long"))
}

#[test]
fn images_that_the_kernel_changed_decode() {
    for options in [
        "-t ext4",
        "-t ext4 -b 4096",
        "-t ext4 -O ^metadata_csum,uninit_bg",
        "-t ext4 -I 128 -O ^64bit",
        "-t ext4 -O ^has_journal",
        "-t ext3",
        "-t ext2 -I 128",
    ] {
        let Some(image) = image::make(options, "60M") else { return };
        let Some(image) = mount::and_unmount(image, busy) else { return };
        let types = decode_all(&image);
        let count = |kind| types.iter().filter(|&&found| found == Some(kind)).count();
        assert_eq!(count(FileType::Fifo), 1, "{options}");
        assert_eq!(count(FileType::CharDevice), 1, "{options}");
        assert_eq!(count(FileType::BlockDevice), 1, "{options}");
        assert_eq!(count(FileType::Symlink), 3, "{options}");
        assert!(count(FileType::Regular) > 266, "{options}");
    }
}

/// Creates files without names, which stay open.
fn orphans(root: &Path) -> io::Result<Vec<fs::File>> {
    let orphan = |n: u32| {
        let path = root.join(format!("orphan {n}"));
        let file = fs::File::create(&path)?;
        fs::remove_file(path)?;
        Ok(file)
    };
    (0..30).map(orphan).collect()
}

#[test]
fn the_kernels_orphans_are_found_and_written_back_byte_for_byte() {
    for options in ["-t ext4", "-t ext4 -b 4096 -O ^metadata_csum"] {
        let Some(image) = image::make(options, "60M") else { return };
        let Some(image) = mount::frozen(image, orphans) else { return };
        let superblock = Superblock::decode(&image.bytes[1024..2048]).expect("superblock");
        assert!(superblock.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT));
        let ino = superblock.orphan_file().expect("an orphan file");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        fs::write(&path, &image.bytes).expect("the image");
        let output = Command::new("debugfs")
            .args(["-R", &format!("blocks <{}>", ino.0)])
            .arg(&path)
            .output()
            .expect("debugfs");
        let places = String::from_utf8(output.stdout).expect("text");
        let size = superblock.geometry().block_size().bytes();
        let seed = OrphanSeed::new(superblock.checksums(), ino, 0);
        let mut found = Vec::new();
        for place in places.split_whitespace().map(|place| place.parse().expect("a block")) {
            let bytes = image.block(place, size);
            let block = OrphanBlock::decode(bytes, Block(place), seed).expect(options);
            found.extend(block.orphans().map(|(_, ino)| ino));
            assert_eq!(block.encode(Block(place), seed), bytes, "{options}");
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 30, "{options}");
    }
}
