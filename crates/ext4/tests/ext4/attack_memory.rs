//! Checks that the caches stay within their cap, whatever kind of object fills them.

use crate::image::{Image, directory, file};
use lanefs_ext4::{Access, Atime, MountOptions};
use std::time::{Duration, Instant};

const DIRECTORIES: usize = 8;
const FILES: usize = 600;

#[test]
fn a_walk_of_a_large_tree_stays_within_the_cache_without_any_commit() {
    let image = Image::made(&["-b", "1024", "-N", "8192"], "64M");
    let mount = image.mount(Access::ReadWrite);
    let root = mount.fs().root().unwrap();
    for d in 0..DIRECTORIES {
        let dir = mount.fs().create(&root, format!("{d}").as_bytes(), &directory()).unwrap();
        for f in 0..FILES {
            mount.fs().create(&dir, format!("a name {f:040}").as_bytes(), &file(0o644)).unwrap();
        }
    }
    drop(root);
    mount.close().unwrap();

    for access in [Access::ReadOnly, Access::ReadWrite] {
        let options = MountOptions {
            cache_bytes: 128 << 10,
            atime: Atime::Noatime,
            commit_interval: Duration::from_secs(3600),
            ..MountOptions::default()
        };
        let mount = image.mount_with(access, options);
        let fs = mount.fs();
        let root = fs.root().unwrap();
        for d in 0..DIRECTORIES {
            let dir = fs.find(&root, format!("{d}").as_bytes()).unwrap().unwrap();
            for f in 0..FILES {
                let name = format!("a name {f:040}");
                assert!(fs.find(&dir, name.as_bytes()).unwrap().is_some());
            }
        }
        // On a busy machine the walk may end before the committer has run. So this loop looks names
        // up again: loads evict objects and, if the caches are still too large, request a commit.
        let dir = fs.find(&root, b"0").unwrap().unwrap();
        let patience = Instant::now() + Duration::from_secs(20);
        let (inodes, blocks, tables) = loop {
            let cached = fs.cached();
            if cached.0 + cached.1 < 1200 || Instant::now() > patience {
                break cached;
            }
            std::thread::sleep(Duration::from_millis(50));
            for f in 0..FILES {
                fs.find(&dir, format!("a name {f:040}").as_bytes()).unwrap();
            }
        };
        println!("{access:?}: {inodes} inodes, {blocks} blocks, {tables} table blocks");
        assert!(inodes + blocks < 1200 && tables < 1200);
        drop((root, dir));
        mount.close().unwrap();
    }
    image.check();
}
