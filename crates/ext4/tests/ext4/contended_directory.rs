//! Checks a directory after changes by many threads, in memory and on disk.

use crate::image::{Image, directory, file};
use lanefs_ext4::{Access, Fs, InodeRef, Rename, SetAttr, SetTime};
use lanefs_lanes::sync::thread;
use lanefs_ondisk::Time;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

const THREADS: usize = 4;
const ROUNDS: usize = 60;

fn name(me: usize, n: usize, what: &str) -> String {
    format!("{what}-{me}-{n}-{:x<40}", "")
}

/// Runs thread `me`. Returns the names that it leaves: one directory and one file for each round.
fn live(fs: &Fs, dir: &InodeRef, me: usize) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for n in 0..ROUNDS {
        let (made, moved) = (name(me, n, "made"), name(me, n, "moved"));
        drop(fs.create(dir, made.as_bytes(), &file(0o644)).unwrap());
        fs.rename(dir, made.as_bytes(), dir, moved.as_bytes(), Rename::NoReplace).unwrap();
        let kept = name(me, n, "directory");
        drop(fs.create(dir, kept.as_bytes(), &directory()).unwrap());
        let gone = name(me, n, "gone");
        drop(fs.create(dir, gone.as_bytes(), &directory()).unwrap());
        fs.rmdir(dir, gone.as_bytes()).unwrap();
        let linked = name(me, n, "linked");
        let inode = fs.find(dir, moved.as_bytes()).unwrap().unwrap();
        fs.link(&inode, dir, linked.as_bytes()).unwrap();
        fs.unlink(dir, moved.as_bytes()).unwrap();
        left.extend([kept, linked]);
    }
    left
}

fn names_in(fs: &Fs, dir: &InodeRef) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    fs.read_dir(dir, 0, &mut |entry| {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        assert!(names.insert(name), "told twice");
        ControlFlow::Continue(())
    })
    .unwrap();
    names.retain(|name| !name.starts_with('.'));
    names
}

#[test]
fn a_contended_directory_counts_its_subdirectories_and_updates_its_times() {
    let image = Image::made(&["-b", "1024", "-N", "4096"], "64M");
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let dir = fs.create(&root, b"all", &directory()).unwrap();
    let (fs, all) = (&**fs, &dir);
    let left: BTreeSet<String> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|me| scope.spawn(move || live(fs, all, me))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(names_in(fs, all), left);
    assert_eq!(all.attr().links as usize, 2 + THREADS * ROUNDS);

    // A time that was set explicitly stays until a name changes, even if the time is in the future.
    let set = Time { secs: 4_000_000_000, nanos: 0 };
    let later = SetAttr { mtime: Some(SetTime::At(set)), ..SetAttr::default() };
    assert_eq!(fs.set_attr(all, &later).unwrap().mtime, set);
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    thread::scope(|scope| {
        for me in 0..THREADS {
            scope.spawn(move || drop(fs.create(all, &[b'0' + me as u8], &file(0o644)).unwrap()));
        }
    });
    let attr = all.attr();
    assert!((before - 1..set.secs).contains(&attr.mtime.secs), "{:?}", attr.mtime);
    assert_eq!(attr.mtime, attr.ctime);
    drop((dir, root));
    mount.close().unwrap();
    image.check();

    let mount = image.mount(Access::ReadOnly);
    let dir = mount.fs().find(&mount.fs().root().unwrap(), b"all").unwrap().unwrap();
    assert_eq!(dir.attr().links as usize, 2 + THREADS * ROUNDS);
    assert_eq!((dir.attr().mtime, dir.attr().ctime), (attr.mtime, attr.ctime));
    drop(dir);
    mount.close().unwrap();
}
