//! Power cuts during resizes of small file systems: of one, two and three groups, and where the
//! number of descriptor blocks changes. Each resize is made offline, and growths in use too.

use lanefs_device::Device;
use lanefs_ext4::{Mount, MountOptions};
use lanefs_offline::{Error, Image};
use lanefs_suites::cuts::{ByOthers, at_some_states, dumpe2fs, filled, in_memory};
use std::sync::Arc;

/// A file system, and two sizes of it.
#[derive(Debug)]
struct Shape {
    /// Options of mke2fs.
    options: &'static str,
    block_size: u64,
    /// The smaller size and the larger one, in KiB.
    sizes: [u64; 2],
}

const fn shape(options: &'static str, block_size: u64, sizes: [u64; 2]) -> Shape {
    Shape { options, block_size, sizes }
}

/// A group has 8 MiB, and a descriptor block describes 16 groups.
const OF_1K: [Shape; 8] = [
    shape("-b 1024 -J size=1 -N 200", 1024, [4 << 10, 7 << 10]),
    shape("-b 1024 -J size=1 -N 200", 1024, [7 << 10, 12 << 10]),
    shape("-b 1024 -J size=1 -N 200", 1024, [7 << 10, 20 << 10]),
    shape("-b 1024 -J size=1 -N 400", 1024, [12 << 10, 20 << 10]),
    shape("-b 1024 -J size=1 -N 200 -O ^resize_inode", 1024, [7 << 10, 12 << 10]),
    shape("-b 1024 -J size=1 -N 200 -O meta_bg,^resize_inode", 1024, [7 << 10, 12 << 10]),
    shape("-t ext3 -b 1024 -J size=1 -N 200", 1024, [7 << 10, 12 << 10]),
    shape("-b 1024 -J size=1 -N 200 -O ^flex_bg,^metadata_csum", 1024, [7 << 10, 12 << 10]),
];

/// A group has 256 blocks. A descriptor block describes 16, 32 or 64 groups, and the larger size
/// has one group more than that, or one group more than two descriptor blocks describe.
const OF_DESCRIPTORS: [Shape; 7] = [
    shape("-b 1024 -J size=1 -g 256 -N 300 -E resize=60000", 1024, [4 << 10, 4352]),
    shape("-b 1024 -J size=1 -g 256 -N 300 -E resize=60000", 1024, [8 << 10, 8448]),
    shape("-b 1024 -J size=1 -g 256 -N 300 -O ^resize_inode", 1024, [4 << 10, 4352]),
    shape("-b 1024 -J size=1 -g 256 -N 300 -O meta_bg,^resize_inode", 1024, [4 << 10, 4352]),
    shape("-b 1024 -J size=1 -g 256 -N 600 -O ^64bit -E resize=60000", 1024, [8 << 10, 8448]),
    shape("-b 2048 -J size=2 -g 256 -N 600", 2048, [16 << 10, (16 << 10) + 512]),
    shape("-b 4096 -J size=4 -g 256 -N 1200", 4096, [64 << 10, 65 << 10]),
];

/// A group has 32 MiB or 128 MiB.
const OF_LARGE_BLOCKS: [Shape; 6] = [
    shape("-b 2048 -J size=2 -N 200", 2048, [14 << 10, 30 << 10]),
    shape("-b 2048 -J size=2 -N 200 -O meta_bg,^resize_inode", 2048, [14 << 10, 48 << 10]),
    shape("-b 2048 -J size=2 -N 200", 2048, [30 << 10, 80 << 10]),
    shape("-b 4096 -J size=4 -N 200", 4096, [24 << 10, 48 << 10]),
    shape("-b 4096 -J size=4 -N 200", 4096, [24 << 10, 300 << 10]),
    shape("-b 4096 -J size=4 -N 200 -O meta_bg,^resize_inode", 4096, [100 << 10, 140 << 10]),
];

/// A way to resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Larger,
    LargerInUse,
    Smaller,
}

impl Way {
    fn run(self, device: Arc<dyn Device>, blocks: u64) -> Result<(), Error> {
        match self {
            Way::Larger => Image::open(device)?.grow(blocks).map(drop),
            Way::Smaller => Image::open(device)?.shrink(blocks).map(drop),
            Way::LargerInUse => {
                let mount = Mount::open(device, MountOptions::default())?;
                mount.fs().grow(blocks)?;
                Ok(mount.close()?)
            }
        }
    }
}

fn cut(shape: &Shape, way: Way) {
    let [small, large] = shape.sizes;
    let (from, to) = if way == Way::Smaller { (large, small) } else { (small, large) };
    let Some(image) = filled(shape.options, &format!("{from}K"), 1) else { return };
    let file = std::fs::File::options().write(true).open(image.path()).expect("the image");
    file.set_len(large << 10).expect("a longer file");
    let mut blocks = (to << 10) / shape.block_size;
    if way == Way::Smaller {
        if dumpe2fs(&image)["Filesystem features"].contains("meta_bg") {
            println!("{shape:?}: meta_bg is not made smaller");
            return;
        }
        blocks = blocks.max(
            Image::open(in_memory(&image)).and_then(|image| image.smallest()).expect("a size"),
        );
    }
    let change = |device| way.run(device, blocks);
    println!("{shape:?}, {way:?}");
    let by_others = if way == Way::Smaller { ByOthers::No } else { ByOthers::Yes };
    let checked = at_some_states(in_memory(&image), &change, by_others, &|image| {
        let found: u64 = dumpe2fs(image)["Block count"].parse().expect("a number");
        assert_eq!(found, blocks, "{shape:?}, {way:?}");
    });
    println!("  {checked}");
}

fn cut_all(shape: &Shape) {
    [Way::Larger, Way::LargerInUse, Way::Smaller].into_iter().for_each(|way| cut(shape, way));
}

#[test]
fn resizing_one_group_can_be_cut_at_every_write() {
    cut_all(&OF_1K[0]);
}

#[test]
fn growing_beyond_the_first_group_can_be_cut_at_every_write() {
    cut(&OF_1K[1], Way::Larger);
    cut(&OF_1K[1], Way::LargerInUse);
}

#[test]
#[ignore = "long: 3,000 states"]
fn resizes_of_few_groups_can_be_cut_at_every_write() {
    OF_1K.iter().chain(&OF_LARGE_BLOCKS).for_each(cut_all);
}

#[test]
#[ignore = "long: 2,000 states"]
fn resizes_that_change_the_number_of_descriptor_blocks_can_be_cut_at_every_write() {
    OF_DESCRIPTORS.iter().for_each(cut_all);
}
