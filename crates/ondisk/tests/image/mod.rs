//! Creates images with mke2fs that contain directories, regular files and symbolic links.
#![allow(dead_code)] // each test program uses a part

pub mod mount;

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// The configuration that mke2fs 1.47 comes with. The configuration of a distribution may select
/// other features.
const CONFIG: &str = include_str!("../../testdata/mke2fs.conf");

/// An image in memory.
pub struct Image {
    pub options: String,
    pub bytes: Vec<u8>,
}

impl Image {
    /// Returns the block with this number.
    pub fn block(&self, number: u64, size: usize) -> &[u8] {
        &self.bytes[number as usize * size..][..size]
    }
}

/// Sets of options for mke2fs, each with the size of the image to create. Together these images
/// have group descriptors of 32 and 64 bytes, inodes of 128, 256 and 512 bytes, and metadata with
/// each kind of checksum and without checksums.
pub const OPTIONS: [(&str, &str); 11] = [
    ("-t ext4", "40M"),
    ("-t ext4 -b 4096", "64M"),
    ("-t ext4 -b 2048 -G 4", "100M"),
    ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", "60M"),
    ("-t ext4 -b 1024 -O ^metadata_csum", "60M"),
    ("-t ext4 -b 4096 -O ^64bit", "40M"),
    ("-t ext4 -b 1024 -O ^64bit,^metadata_csum,uninit_bg -I 128", "40M"),
    ("-t ext4 -b 1024 -O ^flex_bg,^resize_inode,meta_bg", "60M"),
    ("-t ext4 -b 4096 -I 512 -O ^metadata_csum_seed,^orphan_file", "40M"),
    ("-t ext3", "30M"),
    ("-t ext2 -b 1024 -I 128", "30M"),
];

/// Creates all images; returns an empty list and prints the reason if mke2fs is missing.
pub fn all() -> Vec<Image> {
    OPTIONS.iter().filter_map(|(options, size)| make(options, size)).collect()
}

/// Creates one image; returns `None` and prints the reason if mke2fs is missing.
pub fn make(options: &str, size: &str) -> Option<Image> {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("mke2fs.conf");
    let path = folder.path().join("image");
    let tree = folder.path().join("tree");
    fs::write(&config, CONFIG).expect("the configuration");
    populate(&tree);
    let output = Command::new("mke2fs")
        .env("MKE2FS_CONFIG", &config)
        .args(["-q", "-F", "-d"])
        .arg(&tree)
        .args(options.split_whitespace())
        .arg(&path)
        .arg(size)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: mke2fs does not run here: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "mke2fs {options}: {output:?}");
    let bytes = fs::read(&path).expect("the image");
    Some(Image { options: options.to_string(), bytes })
}

/// Creates directories, regular files and symbolic links, so that blocks and inodes are in use.
fn populate(tree: &Path) {
    fs::create_dir(tree).expect("tree");
    for i in 0..30 {
        let folder = tree.join(format!("folder {i}"));
        fs::create_dir(&folder).expect("folder");
        fs::write(folder.join("file"), vec![i; 1 + 700 * usize::from(i)]).expect("file");
    }
    let sparse = fs::File::create(tree.join("sparse")).expect("sparse");
    for i in 0..20u64 {
        sparse.write_at(b"x", i * 70_000).expect("sparse");
    }
    symlink("short", tree.join("short link")).expect("link");
    symlink("long/".repeat(40), tree.join("long link")).expect("link");
    let mode = fs::Permissions::from_mode(0o6751);
    fs::set_permissions(tree.join("sparse"), mode).expect("mode");
}
