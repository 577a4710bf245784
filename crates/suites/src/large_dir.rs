//! Images with a directory whose two-level index is full, so that the next name needs a third level
//! (`large_dir`).

use crate::image::{Image, KernelMount};
use std::process::Command;

const SIZE: &str = "64M";
/// Options for mke2fs: few inodes, and room for the directory.
pub const OPTIONS: &str = "-b 1024 -N 64 -J size=4";

/// Returns a name that is so long that a leaf of 1 KiB holds only three such names.
pub fn name(n: usize) -> String {
    format!("{n:0>250}")
}

/// Lets the kernel add links to `/file` in `/d` until the directory is full. The names are numbered
/// from `first` on, up to but not including `end`. Returns the number of the first name that does
/// not exist.
pub fn link_by_kernel(mount: &KernelMount, first: usize, end: usize) -> usize {
    let at = |path: &str| mount.path().join(path);
    std::fs::create_dir_all(at("d")).expect("a directory");
    if first == 0 {
        std::fs::write(at("file"), b"contents").expect("a file");
    }
    for n in first..end {
        match std::fs::hard_link(at("file"), at("d").join(name(n))) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return n,
            Err(error) => panic!("link {n}: {error}"),
        }
    }
    end
}

/// Makes an image with a directory whose index has two levels and is full, and then gives the image
/// the feature `large_dir`. Returns the image, and the number of the first name for which the
/// kernel found no room.
pub fn full_of_two_levels(options: &str) -> Option<(Image, usize)> {
    let image = Image::make(options, SIZE)?;
    let mount = image.kernel_mount("noatime")?;
    let refused = link_by_kernel(&mount, 0, 60_000);
    assert!(refused < 60_000, "the directory did not become full");
    mount.unmount();
    let tuned = Command::new("tune2fs").args(["-O", "large_dir"]).arg(image.path()).output();
    let tuned = tuned.expect("tune2fs runs");
    assert!(tuned.status.success(), "{tuned:?}");
    Some((image, refused))
}

/// Returns how many levels the index of `/d` has below its root, as debugfs prints it.
pub fn levels(image: &Image) -> u32 {
    let output = Command::new("debugfs").args(["-R", "htree_dump /d"]).arg(image.path()).output();
    let text = String::from_utf8_lossy(&output.expect("debugfs runs").stdout).into_owned();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Indirect levels: "));
    line.and_then(|levels| levels.trim().parse().ok()).expect("the dump of a root")
}
