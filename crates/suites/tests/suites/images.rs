//! Images of every supported format. The kernel fills an image and Lanefs reads it, or the reverse.

use lanefs_suites::fill::{Scale, fill};
use lanefs_suites::formats::{
    self, BLOCK_MAPS, Format, both_ways, run_on_kernel, run_on_library, seen_by_kernel,
    seen_by_library,
};
use lanefs_suites::image::Image;
use lanefs_suites::random::in_parallel;

/// Images of sizes that the list of formats does not contain.
const SIZES: [Format; 2] = [
    Format { options: "-b 1024", size: "1M" },
    Format { options: "-b 4096 -E lazy_itable_init=1", size: "2048M" },
];

fn exchange(format: Format, scale: Scale) {
    println!("mke2fs {} {}: {:?}", format.options, format.size, both_ways(format, scale));
}

fn named(options: &str) -> Format {
    formats::all().find(|format| format.options == options).expect("a format")
}

#[test]
fn the_kernel_and_lanefs_read_each_others_small_images() {
    exchange(SIZES[0], Scale::of_image(1, 1024));
    for format in [named("-b 1024"), named("-b 1024 -O bigalloc -C 4096"), BLOCK_MAPS[0]] {
        exchange(format, format.scale());
    }
}

#[test]
#[ignore = "long: every format"]
fn the_kernel_and_lanefs_read_each_others_images() {
    let formats: Vec<Format> = formats::all().collect();
    in_parallel((0..formats.len() as u64).collect(), |n| {
        let format = formats[n as usize];
        exchange(format, format.scale());
    });
}

#[test]
#[ignore = "long: large trees"]
fn the_kernel_and_lanefs_read_each_others_large_trees() {
    exchange(SIZES[1], Scale::of_image(128, 4096));
    for options in ["-b 1024", "-b 4096", "-t ext3 -b 1024", "-b 1024 -O ^metadata_csum,uninit_bg"]
    {
        let format = named(options);
        let large = Scale::of_image(64, format.scale().block);
        exchange(
            format,
            Scale { files: large.files, pieces: large.pieces, depth: 40, ..format.scale() },
        );
    }
}

#[test]
#[ignore = "long: e2fsck of 16 TiB takes a quarter of a minute"]
fn sixteen_tebibytes_are_read_and_written() {
    let format = Format { options: "-b 4096 -E lazy_itable_init=1", size: "16T" };
    let Some(image) = format.make() else { return };
    run_on_library(&image, &fill(Scale { files: 100, ..Scale::of_image(64, 4096) }));
    let Some(seen) = seen_by_kernel(format, &image) else { return };
    seen.assert_same(&seen_by_library(&image), "16 TiB, kernel / Lanefs");
    image.assert_clean("16 TiB");
}

#[test]
fn a_read_only_mount_changes_not_one_byte() {
    let format = Format { options: "", size: "32M" };
    let Some(image) = Image::make(format.options, format.size) else { return };
    let scale = Scale { files: 20, ..Scale::of_image(8, 1024) };
    let Some(()) = run_on_kernel(format, &image, &fill(scale)) else { return };
    let before = std::fs::read(image.path()).expect("the image");
    let seen = seen_by_library(&image);
    assert!(seen.entries.len() > 50);
    assert!(std::fs::read(image.path()).expect("the image") == before);
}
