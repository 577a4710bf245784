//! Images of every supported format that the kernel fills and Lanefs reads, and the reverse.

use lanefs_device::{Access as DeviceAccess, FileDevice, OpenOptions};
use lanefs_ext4::{Access, Mount, MountOptions};
use lanefs_suites::both::{open, run_all};
use lanefs_suites::fill::{Scale, WideTimes, change, fill};
use lanefs_suites::image::{Image, Mappings};
use lanefs_suites::kernel::Kernel;
use lanefs_suites::library::Library;
use lanefs_suites::listing::{self, Listing};
use lanefs_suites::op::{Op, show};
use std::sync::Arc;

/// Options for mke2fs, the size in MiB and the resulting block size.
type Set = (&'static str, u64, usize);

/// Images whose files are mapped by extents.
const SETS: [Set; 21] = [
    ("", 64, 1024),
    ("-b 2048", 64, 2048),
    ("-b 4096", 128, 4096),
    ("-O ^orphan_file,^metadata_csum_seed", 64, 1024),
    ("-b 4096 -O ^orphan_file,^metadata_csum_seed", 64, 4096),
    ("-O ^metadata_csum,uninit_bg", 64, 1024),
    ("-b 4096 -O ^metadata_csum", 64, 4096),
    ("-b 4096 -O ^64bit", 64, 4096),
    ("-O ^flex_bg,^resize_inode", 64, 1024),
    ("-O ^has_journal,^orphan_file", 32, 1024),
    ("-I 128 -O ^metadata_csum,uninit_bg", 64, 1024),
    ("-b 4096 -I 512", 64, 4096),
    ("-O ^dir_index", 64, 1024),
    ("-b 1024 -N 2400 -G 4", 32, 1024),
    ("-b 4096 -E lazy_itable_init=0,lazy_journal_init=0", 64, 4096),
    ("", 1, 1024),
    ("-E lazy_itable_init=1", 2048, 4096),
    ("-O large_dir", 64, 1024),
    ("-O mmp -E mmp_update_interval=1", 32, 1024),
    ("-b 1024 -O bigalloc -C 4096", 64, 1024),
    ("-b 4096 -O bigalloc -C 16384", 128, 4096),
];

/// Images whose files have block maps.
const BLOCK_MAPS: [Set; 6] = [
    ("-t ext3 -b 1024", 64, 1024),
    ("-t ext3 -b 2048", 64, 2048),
    ("-t ext3 -b 4096", 128, 4096),
    ("-t ext3 -b 1024 -I 128 -O ^resize_inode,^dir_index", 32, 1024),
    ("-t ext2 -b 1024 -I 128", 32, 1024),
    ("-b 4096 -O ^extent,^64bit,^flex_bg", 64, 4096),
];

fn scale(options: &str, megabytes: u64, block: usize) -> Scale {
    let mut scale = Scale::of_image(megabytes.min(128), block).with(Mappings::of(options));
    if options.contains("-I 128") {
        scale.wide_times = WideTimes::No;
    }
    if options.contains("^dir_index") {
        scale.files = 300;
    }
    scale
}

fn run_on_kernel(image: &Image, ops: &[Op]) -> Option<()> {
    let mount = image.kernel_mount("noatime")?;
    run_all(&mut Kernel::new(mount.path()), "the kernel", ops);
    mount.unmount();
    Some(())
}

fn run_on_library(image: &Image, ops: &[Op]) {
    let mount = open(image);
    run_all(&mut Library::new(mount.fs()), "Lanefs", ops);
    mount.close().expect("Lanefs unmounts it");
}

fn seen_by_kernel(image: &Image) -> Option<Listing> {
    let mount = image.kernel_mount("ro")?;
    let listing = listing::of_kernel(mount.path()).expect("the kernel reads everything");
    mount.unmount();
    Some(listing)
}

fn seen_by_library(image: &Image) -> Listing {
    let opened = FileDevice::open(image.path(), DeviceAccess::ReadOnly, OpenOptions::default());
    let device = Arc::new(opened.expect("the image opens"));
    let options = MountOptions { access: Access::ReadOnly, ..MountOptions::default() };
    let mount = Mount::open(device, options).expect("Lanefs mounts it read-only");
    listing::of_library(mount.fs())
        .unwrap_or_else(|(path, error)| panic!("{}: {error}", show(&path)))
}

/// Tests both directions with one set of options.
fn both_ways(options: &str, size: &str, scale: Scale) {
    let what = format!("mke2fs {options} {size}");
    let (fill, change) = (fill(scale), change(scale));
    let Some(kernels) = Image::make(options, size) else { return };
    let Some(()) = run_on_kernel(&kernels, &fill) else { return };
    let Some(before) = seen_by_kernel(&kernels) else { return };
    before
        .assert_same(&seen_by_library(&kernels), &format!("{what}: the kernel's, kernel / Lanefs"));

    let Some(ours) = Image::make(options, size) else { return };
    run_on_library(&ours, &fill);
    ours.assert_clean(&format!("{what}: filled by Lanefs"));
    let Some(after) = seen_by_kernel(&ours) else { return };
    after.assert_same(&seen_by_library(&ours), &format!("{what}: Lanefs's, kernel / Lanefs"));
    before
        .content()
        .assert_same(&after.content(), &format!("{what}: filled by kernel / by Lanefs"));

    // Each file system changes the image that the other one filled.
    run_on_library(&kernels, &change);
    kernels.assert_clean(&format!("{what}: filled by the kernel, changed by Lanefs"));
    let Some(()) = run_on_kernel(&ours, &change) else { return };
    let (Some(a), Some(b)) = (seen_by_kernel(&kernels), seen_by_kernel(&ours)) else { return };
    a.assert_same(
        &seen_by_library(&kernels),
        &format!("{what}: changed by Lanefs, kernel / Lanefs"),
    );
    b.assert_same(
        &seen_by_library(&ours),
        &format!("{what}: changed by the kernel, kernel / Lanefs"),
    );
    a.content().assert_same(&b.content(), &format!("{what}: changed by Lanefs / by the kernel"));
}

#[test]
fn the_kernel_and_lanefs_read_each_others_small_images() {
    for (options, megabytes, block) in [SETS[0], SETS[15], SETS[19], BLOCK_MAPS[0]] {
        both_ways(options, &format!("{megabytes}M"), scale(options, megabytes, block));
    }
}

#[test]
#[ignore = "long: every form of image"]
fn the_kernel_and_lanefs_read_each_others_images() {
    all_ways(&SETS);
}

#[test]
#[ignore = "long: every form of ext2 and ext3"]
fn the_kernel_and_lanefs_read_each_others_ext2_and_ext3() {
    all_ways(&BLOCK_MAPS);
}

fn all_ways(sets: &[Set]) {
    for (options, megabytes, block) in sets {
        println!("mke2fs {options} {megabytes}M");
        both_ways(options, &format!("{megabytes}M"), scale(options, *megabytes, *block));
    }
}

#[test]
#[ignore = "long: e2fsck of 16 TiB takes a quarter of a minute"]
fn sixteen_tebibytes_are_read_and_written() {
    let Some(image) = Image::make("-E lazy_itable_init=1", "16T") else { return };
    run_on_library(&image, &fill(Scale { files: 100, ..Scale::of_image(64, 4096) }));
    let Some(seen) = seen_by_kernel(&image) else { return };
    seen.assert_same(&seen_by_library(&image), "16 TiB, kernel / Lanefs");
    image.assert_clean("16 TiB");
}

#[test]
fn a_read_only_mount_changes_not_one_byte() {
    let Some(image) = Image::make("", "32M") else { return };
    let scale = Scale { files: 20, ..Scale::of_image(8, 1024) };
    let Some(()) = run_on_kernel(&image, &fill(scale)) else { return };
    let before = std::fs::read(image.path()).expect("the image");
    let seen = seen_by_library(&image);
    assert!(seen.entries.len() > 50);
    assert!(std::fs::read(image.path()).expect("the image") == before);
}
