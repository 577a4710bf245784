//! Tests files without names on images without an orphan file. On these images, files without names
//! are in the legacy list, which has a part for each lane.

use crate::image::{Image, file};
use lanefs_ext4::{Access, Fs, InodeRef};
use std::process::Command;

const THREADS: usize = 4;
const EACH: usize = 30;

/// Each thread creates files without names, and closes every third one meanwhile.
fn made_by_threads(fs: &Fs) -> Vec<InodeRef> {
    let make = || {
        let root = fs.root().unwrap();
        let all = (0..EACH).map(|_| fs.create_unnamed(&root, &file(0o600)).unwrap());
        all.enumerate().filter(|(n, _)| n % 3 != 0).map(|(_, inode)| inode).collect()
    };
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..THREADS).map(|_| s.spawn(make)).collect();
        threads.into_iter().flat_map(|t| -> Vec<InodeRef> { t.join().unwrap() }).collect()
    })
}

/// Fails unless e2fsck finds this number of orphans in the state after a power cut, and a mount of
/// Lanefs frees all of them.
fn both_find(image: &Image, orphans: usize, free: u64) {
    let checked = image.copied();
    let run = Command::new("e2fsck").arg("-fy").arg(checked.path()).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(said.matches("Clearing orphaned inode").count(), orphans, "{said}");
    checked.check();
    let mounted = image.copied();
    let mount = mounted.mount(Access::ReadWrite);
    assert_eq!(mount.fs().stat_fs().inodes_free, free);
    mount.close().unwrap();
    mounted.check();
}

#[test]
fn unnamed_files_of_many_threads_are_deleted_after_a_crash() {
    for options in ["^orphan_file", "^orphan_file,^metadata_csum"] {
        let image = Image::made(&["-O", options], "32M");
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs();
        let free = fs.stat_fs().inodes_free;
        let mut kept = made_by_threads(fs);
        fs.sync().unwrap();
        both_find(&image, THREADS * EACH / 3 * 2, free);
        // This thread has added no entries to the list. It removes entries of all other threads,
        // and not only the newest ones.
        let mut n = 0;
        kept.retain(|_| {
            n += 1;
            n % 4 == 0
        });
        kept.extend(made_by_threads(fs));
        fs.sync().unwrap();
        both_find(&image, kept.len(), free);
        drop(kept);
        mount.close().unwrap();
        image.check();
    }
}
