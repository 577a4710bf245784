//! What is promised once damage was found while running.

mod image;

use image::{Image, file};
use lanefs_ext4::{Access, MountOptions, Privilege, SyncMode};
use std::time::Duration;

#[test]
fn fsync_keeps_its_promise_though_damage_has_made_the_mount_read_only() {
    let image = Image::made(&["-b", "4096"], "32M");
    let mount = image.mount(Access::ReadWrite);
    let root = mount.fs().root().unwrap();
    let damaged = mount.fs().create(&root, b"damaged", &file(0o644)).unwrap();
    mount.fs().write_at(&damaged, 0, &[1; 4096], Privilege::Root).unwrap();
    drop((root, damaged));
    mount.close().unwrap();
    // The place in the first extent of i_block: a block that is free.
    image.debugfs(&["sif damaged block[5] 7000"]);

    let options =
        MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let promised = fs.create(&root, b"promised", &file(0o644)).unwrap();
    fs.write_at(&promised, 0, b"written before", Privilege::Root).unwrap();
    fs.unlink(&root, b"damaged").unwrap();
    assert!(fs.is_read_only(), "a block was freed that was free");
    fs.fsync(&promised, SyncMode::Full).unwrap();
    let after = image.copied();
    drop((root, promised));
    mount.close().unwrap();

    let mount = after.mount(Access::ReadOnly);
    let root = mount.fs().root().unwrap();
    let found = mount.fs().find(&root, b"promised").unwrap().expect("what fsync promised");
    assert_eq!(found.attr().size, 14);
}
