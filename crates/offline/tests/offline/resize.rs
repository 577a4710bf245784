//! Tests that make file systems larger and smaller. The results of growing are compared with those
//! of resize2fs, and the kernel uses the resulting images. In further tests, a crash interrupts a
//! resize at every write.

use lanefs_device::{Access, Device, FileDevice, OpenOptions};
use lanefs_ext4::{Mount, MountOptions};
use lanefs_offline::{Error, Image};
use lanefs_suites::cuts::{at_every_cut, dumpe2fs, filled, in_memory, same, seen};
use lanefs_suites::image::Image as Disk;
use lanefs_suites::library::Library;
use lanefs_suites::op::{File, Kind, Op, Tree};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

/// For each case: options for mke2fs, the block size in bytes, and the size in megabytes before and
/// after the growth.
const GROWN: [(&str, u64, u64, u64); 14] = [
    ("-b 1024 -J size=1 -N 2000", 1024, 14, 30),
    ("-b 1024 -J size=1 -N 2000", 1024, 14, 150),
    ("-b 1024 -J size=1 -g 1024 -N 2000", 1024, 14, 77),
    ("-b 4096 -J size=4", 4096, 40, 700),
    ("-b 4096 -O ^has_journal", 4096, 40, 300),
    ("-b 1024 -J size=1 -O ^flex_bg -N 2000", 1024, 14, 60),
    ("-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed,^64bit -I 128", 1024, 14, 60),
    ("-b 1024 -J size=1 -g 512 -O meta_bg,^resize_inode -N 2000", 1024, 14, 60),
    ("-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed,uninit_bg -N 2000", 1024, 14, 60),
    ("-t ext3 -b 1024 -J size=1 -N 2000", 1024, 14, 60),
    // This growth adds no group.
    ("-b 4096 -J size=4", 4096, 40, 100),
    ("-b 8192 -J size=8", 8192, 40, 700),
    ("-b 65536", 65536, 200, 4500),
    // The journal that it gets meanwhile takes more than half of it.
    ("-b 4096 -O ^has_journal -N 400", 4096, 7, 40),
];

/// The largest block size of the images that these tests mount with the kernel.
const PAGE: u64 = 4096;

fn lengthen(image: &Disk, megabytes: u64) {
    let file = std::fs::File::options().write(true).open(image.path()).expect("the image");
    file.set_len(megabytes << 20).expect("a longer file");
}

fn grow(device: Arc<dyn Device>, block_size: u64, megabytes: u64) -> Result<u64, Error> {
    Image::open(device)?.grow((megabytes << 20) / block_size)
}

#[test]
fn a_larger_file_system_is_what_resize2fs_makes() {
    for (options, block_size, before, after) in GROWN {
        let Some(image) = filled(options, &format!("{before}M"), 2) else { return };
        let context = format!("{options} from {before} to {after}");
        let listing = seen(image.device());
        lengthen(&image, after);
        let copy = Disk::empty();
        std::fs::copy(image.path(), copy.path()).expect("a copy");
        let resized = Command::new("resize2fs").arg("-f").arg(copy.path()).output();
        let resized = resized.expect("resize2fs");
        assert!(resized.status.success(), "{}", String::from_utf8_lossy(&resized.stderr));
        grow(image.device(), block_size, after).expect("a larger file system");
        image.assert_clean(&context);
        same(&listing, &seen(image.device()), &context);
        let (ours, theirs) = (dumpe2fs(&image), dumpe2fs(&copy));
        for name in [
            "Block count",
            "Inode count",
            "Reserved block count",
            "Reserved GDT blocks",
            "Blocks per group",
            "Inodes per group",
            "Filesystem features",
            "Free inodes",
            "Free blocks",
        ] {
            assert_eq!(ours.get(name), theirs.get(name), "{context}: {name}");
        }
        if block_size > PAGE {
            continue;
        }
        let Some(mount) = image.kernel_mount("") else { continue };
        std::fs::write(mount.path().join("by-the-kernel"), vec![7; 1 << 20]).expect("a file");
        mount.unmount();
        image.assert_clean(&format!("{context}, used by the kernel"));
    }
}

fn cut((options, block_size, before, after): (&str, u64, u64, u64)) {
    let Some(image) = filled(options, &format!("{before}M"), 1) else { return };
    lengthen(&image, after);
    let change = |device| grow(device, block_size, after).map(|_| ());
    let checked = at_every_cut(in_memory(&image), &change, &|image| {
        let blocks: u64 = dumpe2fs(image)["Block count"].parse().expect("a number");
        assert!(blocks > ((after - 4) << 20) / block_size, "{blocks}");
    });
    println!("{options}: {checked:?}");
}

#[test]
fn growing_can_be_cut_at_every_write() {
    cut(GROWN[0]);
}

#[test]
#[ignore = "long: 3,000 states"]
fn growing_can_be_cut_at_every_write_with_other_layouts() {
    let without_reserve = ("-b 1024 -J size=1 -g 512 -O ^resize_inode,^flex_bg", 1024, 14, 30);
    [GROWN[2], GROWN[6], GROWN[7], without_reserve].into_iter().for_each(cut);
}

#[test]
fn growing_step_by_step_takes_descriptors_from_the_reserve() {
    let options = "-b 1024 -J size=1 -N 600 -g 256 -E resize=60000";
    let Some(image) = filled(options, "14M", 1) else { return };
    let listing = seen(image.device());
    for megabytes in [15, 17, 19, 26, 40, 58] {
        lengthen(&image, megabytes);
        grow(image.device(), 1024, megabytes).expect("a larger file system");
        image.assert_clean(&format!("{megabytes} MiB"));
    }
    same(&listing, &seen(image.device()), "58 MiB");
    lengthen(&image, 2000);
    let refused = grow(image.device(), 1024, 2000).expect_err("a refusal").to_string();
    assert!(refused.contains("resize inode reserves"), "{refused}");
    image.assert_clean("after the refusal");
}

/// Beyond the reserved blocks, the descriptors of the new groups lie in these groups, also after a
/// second growth. A refusal changes nothing.
#[test]
fn meta_bg_takes_a_growth_beyond_the_reserved_blocks() {
    for (options, sizes) in [
        ("-b 1024 -J size=1 -g 256 -N 600 -E resize=60000", [300, 2000]),
        ("-b 1024 -J size=1 -g 256 -N 600 -E resize=15000", [18, 19]),
        ("-b 1024 -J size=1 -g 256 -N 600 -E resize=60000 -O ^flex_bg,^metadata_csum", [70, 90]),
        ("-b 1024 -g 256 -N 600 -E resize=60000 -O ^has_journal", [80, 81]),
        ("-b 4096 -g 256 -N 600 -J size=4 -E resize=60000", [3000, 20_000]),
    ] {
        let Some(image) = filled(options, "14M", 1) else { return };
        let listing = seen(image.device());
        let block_size: u64 = dumpe2fs(&image)["Block size"].parse().expect("a number");
        let by_meta_bg = |megabytes: u64| {
            Image::open(image.device())?.grow_by_meta_bg((megabytes << 20) / block_size)
        };
        let before = std::fs::read(image.path()).expect("the image");
        assert!(by_meta_bg(sizes[1]).is_err(), "{options}: the device is too short");
        assert!(std::fs::read(image.path()).expect("the image") == before, "{options}");
        for megabytes in sizes {
            let context = format!("{options}: {megabytes} MiB");
            lengthen(&image, megabytes);
            let blocks = by_meta_bg(megabytes).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(blocks > ((megabytes - 1) << 20) / block_size, "{context}: {blocks}");
            image.assert_clean(&context);
            same(&listing, &seen(image.device()), &context);
        }
        let Some(mount) = image.kernel_mount("") else { continue };
        std::fs::write(mount.path().join("by-the-kernel"), vec![7; 1 << 20]).expect("a file");
        mount.unmount();
        image.assert_clean(&format!("{options}, used by the kernel"));
    }
}

/// Without a resize inode, no block is reserved for further descriptors. So the descriptors of the
/// new groups lie in the new groups, and the old descriptors and their copies keep their places.
#[test]
fn without_reserved_blocks_the_new_descriptors_lie_in_the_new_groups() {
    for options in [
        "-b 1024 -J size=1 -g 256 -N 600 -O ^resize_inode",
        "-b 1024 -J size=1 -g 256 -N 600 -O ^resize_inode,^flex_bg",
        "-b 1024 -J size=1 -g 256 -N 600 -O ^resize_inode,^sparse_super,^metadata_csum",
    ] {
        let Some(image) = filled(options, "14M", 2) else { return };
        let listing = seen(image.device());
        for megabytes in [15, 21, 40] {
            lengthen(&image, megabytes);
            let context = format!("{options}: {megabytes} MiB");
            let blocks = grow(image.device(), 1024, megabytes);
            assert_eq!(blocks.expect("a larger file system"), megabytes << 10, "{context}");
            image.assert_clean(&context);
            same(&listing, &seen(image.device()), &context);
        }
        let Some(mount) = image.kernel_mount("") else { continue };
        std::fs::write(mount.path().join("by-the-kernel"), vec![7; 1 << 20]).expect("a file");
        mount.unmount();
        image.assert_clean(&format!("{options}, used by the kernel"));
    }
}

#[test]
fn a_size_beyond_the_device_is_refused() {
    let Some(image) = filled("-b 1024 -J size=1", "14M", 1) else { return };
    let before = std::fs::read(image.path()).expect("the image");
    assert!(grow(image.device(), 1024, 20).is_err());
    assert_eq!(std::fs::read(image.path()).expect("the image"), before);
    let opened = FileDevice::open(image.path(), Access::ReadWrite, OpenOptions::default());
    let same_size = Image::open(Arc::new(opened.expect("the image"))).expect("a file system");
    drop(same_size);
}

fn shrink(device: Arc<dyn Device>, blocks: u64) -> Result<u64, Error> {
    Image::open(device)?.shrink(blocks)
}

/// For each case: options for mke2fs, the size in megabytes before and after, and the size of the
/// tree in megabytes.
const SHRUNK: [(&str, u64, u64, u64); 11] = [
    ("-b 1024 -J size=1 -N 2000", 60, 41, 8),
    ("-b 1024 -J size=1 -g 1024 -N 4000", 60, 30, 8),
    ("-b 4096 -J size=4", 400, 90, 8),
    ("-b 4096 -O ^has_journal", 400, 90, 8),
    ("-b 1024 -J size=1 -O ^flex_bg -N 4000", 60, 30, 8),
    ("-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed,^64bit -I 128", 60, 30, 8),
    ("-b 1024 -J size=1 -O ^metadata_csum,^metadata_csum_seed,uninit_bg -N 4000", 60, 30, 8),
    ("-t ext3 -b 1024 -J size=1 -N 4000", 60, 30, 8),
    ("-b 1024 -J size=1 -O ^extent,^64bit -N 4000", 60, 30, 8),
    ("-b 8192 -J size=8", 700, 90, 8),
    ("-b 65536 -J size=64", 4500, 300, 8),
];

#[test]
fn a_smaller_file_system_keeps_everything_and_the_kernel_uses_it() {
    for (options, before, after, megabytes) in SHRUNK {
        let Some(image) = filled(options, &format!("{before}M"), megabytes) else { return };
        let context = format!("{options} from {before} to {after}");
        let listing = seen(image.device());
        let block_size: u64 = dumpe2fs(&image)["Block size"].parse().expect("a number");
        let blocks = shrink(image.device(), (after << 20) / block_size)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(blocks * block_size <= after << 20, "{context}: {blocks}");
        image.assert_clean(&context);
        same(&listing, &seen(image.device()), &context);
        let file = std::fs::File::options().write(true).open(image.path()).expect("the image");
        file.set_len(blocks * block_size).expect("a shorter file");
        image.assert_clean(&format!("{context}, cut"));
        if block_size <= PAGE
            && let Some(mount) = image.kernel_mount("")
        {
            std::fs::write(mount.path().join("by-the-kernel"), vec![7; 1 << 20]).expect("a file");
            mount.unmount();
            image.assert_clean(&format!("{context}, used by the kernel"));
        }
        let least = Image::open(image.device()).expect("the image").smallest().expect("a size");
        let blocks = shrink(image.device(), least).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(blocks, least, "{context}");
        image.assert_clean(&format!("{context}, smallest"));
        println!("{context}: smallest {}", blocks * block_size);
    }
}

#[test]
fn file_systems_with_ea_inode_inline_data_or_stable_inodes_are_not_made_smaller() {
    for name in ["ea_inode", "inline_data", "stable_inodes"] {
        let options = format!("-b 1024 -J size=1 -O {name}");
        let Some(image) = filled(&options, "40M", 2) else { return };
        let refused = shrink(image.device(), 30 << 10).expect_err("a refusal").to_string();
        assert_eq!(refused, format!("a file system with {name} cannot be made smaller here"));
        image.assert_clean("refused");
    }
}

/// Cuts the power at every write while the image shrinks to `after` megabytes.
fn cut_smaller(image: &Disk, after: u64, options: &str) {
    let block_size: u64 = dumpe2fs(image)["Block size"].parse().expect("a number");
    let blocks = (after << 20) / block_size;
    let change = |device| shrink(device, blocks).map(|_| ());
    let checked = at_every_cut(in_memory(image), &change, &|image| {
        let found: u64 = dumpe2fs(image)["Block count"].parse().expect("a number");
        assert!(found <= blocks, "{found}");
    });
    println!("{options}: {checked:?}");
}

/// The journal, files, directories and inodes move.
#[test]
fn shrinking_can_be_cut_at_every_write() {
    let options = "-b 1024 -J size=1 -g 1024 -N 160";
    let Some(image) = Disk::make(options, "10M") else { return };
    // The allocator spreads the subdirectories of the root over the groups.
    let top = (0..6).map(|n| directory(&n.to_string()));
    let files = (0..6).flat_map(|n| file(&format!("{n}/f"), 9000, 0));
    act(&image, &top.chain(files).collect::<Vec<Op>>());
    let beyond = |what: &str| {
        let blocks = image.debugfs(&format!("blocks {what}"));
        blocks.split_whitespace().any(|block| block.parse::<u64>().expect("a number") >= 5 << 10)
    };
    assert!(beyond("<8>") && (0..6).any(|n| beyond(&format!("/{n}/f"))));
    let inodes = number(&dumpe2fs(&image), "Inodes per group") * 5;
    let inode =
        |n: u32| image.debugfs(&format!("stat /{n}")).split_whitespace().nth(1).map(String::from);
    assert!((0..6).any(|n| inode(n).and_then(|inode| inode.parse().ok()) > Some(inodes)));
    cut_smaller(&image, 5, options);
}

#[test]
#[ignore = "long: thousands of states"]
fn shrinking_can_be_cut_at_every_write_with_other_layouts() {
    for (options, before, after) in [
        ("-b 1024 -J size=1 -g 2048 -N 1200", 24, 9),
        ("-b 1024 -J size=1 -g 1024 -O ^flex_bg -N 4000", 30, 14),
        ("-b 1024 -J size=1 -g 2048 -O ^metadata_csum,^metadata_csum_seed -N 4000", 30, 14),
    ] {
        let Some(image) = filled(options, &format!("{before}M"), 2) else { return };
        cut_smaller(&image, after, options);
    }
}

fn act(image: &Disk, ops: &[Op]) {
    let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
    let mut library = Library::new(mount.fs());
    for op in ops {
        library.apply(op).unwrap_or_else(|errno| panic!("{op:?}: error {errno}"));
    }
    drop(library);
    mount.close().expect("a clean end");
}

fn file(path: &str, len: usize, owner: u32) -> [Op; 2] {
    let path = path.as_bytes().to_vec();
    let (kind, permissions, uid, gid) = (Kind::Regular, 0o644, owner, owner + 1);
    let create = Op::Create { path: path.clone(), kind, permissions, uid, gid };
    [create, Op::Write { file: File::At(path), offset: 0, len, seed: owner.into() }]
}

fn directory(path: &str) -> Op {
    let (kind, permissions) = (Kind::Directory, 0o755);
    Op::Create { path: path.as_bytes().to_vec(), kind, permissions, uid: 0, gid: 0 }
}

fn unlink(path: &str) -> Op {
    Op::Unlink { path: path.as_bytes().to_vec() }
}

/// Returns an image with a file that lies after many short runs of free blocks. A move into these
/// runs gives the file more extents, and its tree more nodes.
fn with_short_runs(options: &str, size: &str, files: u32, len: usize) -> Option<Disk> {
    let image = Disk::make(options, size)?;
    let small = |n: u32| format!("d/{n}");
    let mut ops = vec![directory("d")];
    ops.extend((0..files).flat_map(|n| file(&small(n), 5, n % 3)));
    ops.extend(file("large", len, 7));
    ops.extend((0..files).step_by(2).map(|n| unlink(&small(n))));
    act(&image, &ops);
    image.assert_clean("before");
    Some(image)
}

fn number(fields: &BTreeMap<String, String>, name: &str) -> u64 {
    fields.get(name).and_then(|value| value.parse().ok()).expect("a number")
}

fn sectors(image: &Disk, path: &str) -> u64 {
    let stat = image.debugfs(&format!("stat {path}"));
    let count = stat.split("Blockcount:").nth(1).and_then(|rest| rest.split_whitespace().next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{stat}"))
}

#[test]
fn files_that_take_more_space_after_a_move_are_counted_for_their_owners() {
    let long = "-b 1024 -N 3000 -J size=1 -O quota,project";
    for options in [
        long,
        "-b 1024 -N 3000 -O quota,project,^has_journal,^orphan_file",
        "-b 1024 -N 3000 -J size=1 -O quota,^extent,^64bit -E quotatype=usrquota",
    ] {
        let size = if options == long { "8M" } else { "9M" };
        let Some(image) = with_short_runs(options, size, 2500, 900_000) else { return };
        let (listing, before) = (seen(image.device()), sectors(&image, "/large"));
        let least = Image::open(image.device()).expect("the image").smallest().expect("a size");
        shrink(image.device(), least).unwrap_or_else(|error| panic!("{options}: {error}"));
        image.assert_clean(options);
        same(&listing, &seen(image.device()), options);
        let after = sectors(&image, "/large");
        assert!(options != long || after > before, "{options}: {before}, {after}");
    }
}

#[test]
#[ignore = "long: 3,500 states"]
fn usage_can_be_cut_at_every_write_of_a_shrink() {
    let options = "-b 1024 -J size=1 -g 2048 -N 1500 -O quota,project";
    let Some(image) = with_short_runs(options, "5M", 1450, 1_000_000) else { return };
    let before = sectors(&image, "/large");
    let least = Image::open(image.device()).expect("the image").smallest().expect("a size");
    let change = |device| shrink(device, least).map(|_| ());
    let checked = at_every_cut(in_memory(&image), &change, &|image| {
        assert!(sectors(image, "/large") > before);
    });
    println!("{checked:?}");
}

#[test]
fn quota_files_beyond_the_new_end_are_moved() {
    let options = "-b 1024 -J size=1 -N 96 -O ^orphan_file -I 256";
    let Some(image) = Disk::make(options, "24M") else { return };
    // The inodes of the first group, and all blocks except the last 5 MiB, are in use when the
    // quota files are made.
    let mut ops = file("fill", 17 << 20, 0).to_vec();
    ops.extend((0..40).flat_map(|n| file(&n.to_string(), 0, 0)));
    act(&image, &ops);
    let tuned = Command::new("tune2fs").args(["-O", "quota,project"]).arg(image.path()).output();
    let tuned = tuned.expect("tune2fs");
    assert!(tuned.status.success(), "{}", String::from_utf8_lossy(&tuned.stderr));
    let mut ops: Vec<Op> = (0..40).map(|n| unlink(&n.to_string())).collect();
    ops.push(unlink("fill"));
    ops.extend(file("kept", 100_000, 1));
    act(&image, &ops);
    image.assert_clean("before");
    let before = dumpe2fs(&image);
    let inode = number(&before, "Project quota inode");
    let last = number(&before, "Inodes per group");
    assert!(inode > last, "{inode} is in the first group");
    let first = image.debugfs("blocks <3>");
    let first = first.split_whitespace().next().and_then(|block| block.parse::<u64>().ok());
    assert!(first > Some(8000), "{first:?} is before the new end");
    let listing = seen(image.device());
    shrink(image.device(), 8000).expect("a smaller file system");
    image.assert_clean("smaller");
    assert!(number(&dumpe2fs(&image), "Project quota inode") <= last);
    same(&listing, &seen(image.device()), "smaller");
    act(&image, &file("new", 5000, 900));
    image.assert_clean("used");
}
