//! Tests blocks and inodes that are freed and reused within one transaction and across two.

use crate::image::{Image, directory, file};
use lanefs_ext4::{Access, Error, MountOptions, Privilege, SetAttr};
use std::time::Duration;

/// Returns options with which nothing is committed unless a caller waits for a commit.
fn lazy() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

#[test]
fn a_block_truncated_and_freed_in_one_transaction_is_not_zeroed_under_its_next_owner() {
    let image = Image::made(&["-b", "1024"], "8M");
    let mount = image.mount_with(Access::ReadWrite, lazy());
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    for n in 0..8 {
        let cut = fs.create(&root, format!("cut {n}").as_bytes(), &file(0o644)).unwrap();
        fs.write_at(&cut, 0, &[0xaa; 1024], Privilege::Root).unwrap();
        fs.set_attr(&cut, &size(100)).unwrap();
        fs.set_attr(&cut, &size(0)).unwrap();
    }
    // This file takes all free blocks, including those that the truncated files had.
    let next = fs.create(&root, b"next", &file(0o644)).unwrap();
    let mut at = 0;
    loop {
        match fs.write_at(&next, at, &[0xbb; 64 << 10], Privilege::Root) {
            Ok(written) => at += written as u64,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    fs.sync().unwrap();
    let mut bytes = vec![0; next.attr().size as usize];
    fs.read_at(&next, 0, &mut bytes).unwrap();
    let wrong = bytes.iter().position(|byte| *byte != 0xbb);
    assert_eq!(wrong, None, "of {} bytes", bytes.len());
    drop((root, next));
    mount.close().unwrap();
    image.check();
}

#[test]
fn a_directory_of_thousands_of_blocks_is_removed_on_the_smallest_journal() {
    let image = Image::made(&["-b", "1024", "-J", "size=1"], "64M");
    let mount = image.mount_with(Access::ReadWrite, lazy());
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let before = fs.stat_fs().blocks_free;
    let dir = fs.create(&root, b"dir", &directory()).unwrap();
    let target = fs.create(&root, b"target", &file(0o644)).unwrap();
    let name = |n: u32| format!("{n:0>250}").into_bytes();
    for n in 0..6000 {
        fs.link(&target, &dir, &name(n)).unwrap();
    }
    assert!(dir.attr().size > 2000 << 10, "{}", dir.attr().size);
    for n in 0..6000 {
        fs.unlink(&dir, &name(n)).unwrap();
    }
    drop(dir);
    fs.rmdir(&root, b"dir").unwrap();
    fs.sync().unwrap();
    assert!(fs.failure().is_none(), "{:?}", fs.failure());
    assert_eq!(fs.stat_fs().blocks_free, before);
    drop((root, target));
    mount.close().unwrap();
    image.check();
}
