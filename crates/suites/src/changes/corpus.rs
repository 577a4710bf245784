//! Clean images of many formats. The tree of each image has every kind of object.

use super::parts::Parts;
use crate::fill::{Scale, WideTimes, change, fill};
use crate::home;
use crate::image::{FOLDING as FOLDED, Image};
use crate::kernel::Kernel;
use crate::library::Library;
use crate::op::Tree;
use lanefs_device::{Device, RamDevice};
use lanefs_ext4::{Fs, Mount, MountOptions};
use lanefs_ondisk::quota::{self, Limits};

/// Options for mke2fs, the size in MiB, and the block size.
const SETS: [(&str, u64, usize); 19] = [
    ("", 16, 1024),
    ("-O ^metadata_csum", 16, 1024),
    ("-t ext3 -I 128", 16, 1024),
    ("-t ext2 -I 256", 16, 1024),
    ("-O inline_data", 16, 1024),
    ("-O bigalloc -C 8192", 32, 1024),
    ("-b 4096", 32, 4096),
    ("-I 128 -O ^metadata_csum,uninit_bg", 16, 1024),
    ("-O meta_bg,^resize_inode", 16, 1024),
    ("-O ea_inode,large_dir", 16, 1024),
    ("-b 2048 -O ^has_journal,^orphan_file,^64bit", 16, 2048),
    ("-O ^flex_bg -g 4096", 16, 1024),
    ("-O sparse_super2,mmp", 16, 1024),
    ("-b 4096 -I 512 -O ^dir_index", 32, 4096),
    ("-O ^extent,^64bit,^orphan_file", 16, 1024),
    ("-O quota,project -I 256", 16, 1024),
    ("-b 8192", 32, 8192),
    ("-b 65536 -O ^metadata_csum,uninit_bg,^64bit", 64, 65536),
    ("-b 65536 -g 256", 64, 65536),
];

/// Images whose directories ignore case. Most kernels do not mount such images. Unless the encoding
/// is strict, e2fsck by default does not compare the names in these directories.
const FOLDING: [(&str, u64, usize); 2] = [
    ("-O casefold -E encoding_flags=strict +F", 16, 1024),
    ("-b 4096 -O casefold,^metadata_csum -E encoding_flags=strict +F", 32, 4096),
];

/// Images with an encrypted directory.
const ENCRYPTED: [(&str, u64, usize); 2] =
    [("-O encrypt", 16, 1024), ("-b 4096 -I 128 -O encrypt,^metadata_csum", 32, 4096)];

/// Images with quota files. Only these files, and the superblock, are changed.
const QUOTAS: [(&str, u64, usize); 3] = [
    ("-O quota,project -I 256", 16, 1024),
    ("-b 4096 -O quota,bigalloc -C 16384", 64, 4096),
    ("-t ext3 -O quota", 16, 1024),
];

/// The number of option sets with blocks larger than a page. These are the last ones in `SETS`. The
/// kernel does not mount images with such blocks.
const LARGE_BLOCKS: usize = 3;

/// Selects the formats of the images in a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The first few formats.
    Sample,
    /// The formats with blocks larger than a page.
    LargeBlocks,
    /// Formats with directories that ignore case.
    Folding,
    /// Formats with an encrypted directory.
    Encrypted,
    /// Formats with quota files. Only these files, and the superblock, are changed.
    Quotas,
    /// All formats in `SETS`. None of them has encryption or directories that ignore case.
    Whole,
}

/// Clean images, which the suite changes.
pub struct Corpus {
    bases: Vec<Base>,
}

/// A clean image in memory.
pub struct Base {
    options: &'static str,
    device: RamDevice,
    parts: Parts,
}

impl Corpus {
    /// Makes the images. Leaves out images that this machine cannot make, and prints the reason.
    pub fn make(extent: Extent) -> Corpus {
        let sets = match extent {
            Extent::Sample => &SETS[..4],
            Extent::LargeBlocks => &SETS[SETS.len() - LARGE_BLOCKS..],
            Extent::Folding => &FOLDING,
            Extent::Encrypted => &ENCRYPTED,
            Extent::Quotas => &QUOTAS,
            Extent::Whole => &SETS,
        };
        let make = |set: &(&'static str, u64, usize)| Base::make(set.0, set.1, set.2);
        let mut bases: Vec<Base> = sets.iter().filter_map(make).collect();
        if extent == Extent::Quotas {
            bases.iter_mut().for_each(|base| base.parts.retain_quotas(&base.device));
        }
        Corpus { bases }
    }

    pub(super) fn bases(&self) -> &[Base] {
        &self.bases
    }
}

/// Sets limits for some users, if the file system has quotas.
pub fn limit(fs: &Fs) {
    let limits = Limits { kib_hard: 1 << 20, inodes_soft: 1000, ..Limits::default() };
    // Setting limits fails if there are no quota files.
    let _ = (0..40).try_for_each(|id| fs.set_quota(quota::Kind::User, id * 7, limits));
}

impl Base {
    fn make(options: &'static str, megabytes: u64, block: usize) -> Option<Base> {
        let image = Image::make(options, &format!("{megabytes}M"))?;
        let wide_times = WideTimes::of(options);
        let scale = Scale::of_image(megabytes, block);
        let scale = Scale { files: 300, pieces: 400, wide_times, ..scale };
        // Results are ignored, because some formats refuse some operations, for example fallocate.
        let run = |tree: &mut dyn Tree| {
            fill(scale).iter().chain(&change(scale)).for_each(|op| drop(tree.apply(op)));
        };
        if block > 4096 || options.contains(FOLDED) || options.contains("quota") {
            let mount = Mount::open(image.device(), MountOptions::default());
            let mount = mount.expect("Lanefs mounts it");
            run(&mut Library::new(mount.fs()));
            limit(mount.fs());
            mount.close().expect("Lanefs unmounts it");
        } else {
            let mount = image.kernel_mount("noatime")?;
            run(&mut Kernel::new(&home::of_kernel(mount.path())?));
            mount.unmount();
        }
        image.assert_clean(&format!("mke2fs {options}, filled"));
        let device = RamDevice::from_file(image.path()).expect("the image is read");
        let parts = Parts::of(&device);
        Some(Base { options, device, parts })
    }

    /// Returns the options of mke2fs.
    pub fn options(&self) -> &str {
        self.options
    }

    /// Returns the image.
    pub fn device(&self) -> &dyn Device {
        &self.device
    }

    /// Returns the parts of the image.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Returns bytes of the image.
    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.device.read_at(at, &mut bytes).expect("inside the image");
        bytes
    }

    /// Returns a copy of the image in a file.
    pub fn copy(&self) -> Image {
        let image = Image::empty();
        self.device.to_file(image.path()).expect("the copy is written");
        image
    }
}
