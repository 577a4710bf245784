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

#[test]
fn damage_is_recorded_in_the_superblock_with_its_inode() {
    let image = Image::made(&["-b", "4096"], "32M");
    image.debugfs(&["mkdir d"]);
    let mount = image.mount(Access::ReadOnly);
    let ino = mount.fs().find(&mount.fs().root().unwrap(), b"d").unwrap().expect("made").ino();
    mount.close().unwrap();
    // A mapping that leads nowhere near a directory block: its leaf has no checksum of ours.
    image.debugfs(&["sif d block[5] 3000"]);
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let dir = fs.find(&root, b"d").unwrap().expect("made");
    assert!(fs.lookup(&dir, b"x").is_err());
    drop((root, dir));
    mount.close().unwrap();
    let output = std::process::Command::new("dumpe2fs").arg("-h").arg(image.path()).output();
    let said = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    let line = said.lines().find(|line| line.starts_with("Last error inode #:"));
    let recorded = line.and_then(|line| line.split(':').nth(1)).map(str::trim);
    assert_eq!(recorded, Some(ino.0.to_string().as_str()), "{said}");
}
