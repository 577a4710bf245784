//! Checks that the caches stay within their cap, whatever kind of object fills them.

use crate::image::{Image, directory, file};
use lanefs_ext4::{Access, Atime, Error, Fs, InodeRef, MasterKey, MountOptions};
use lanefs_ondisk::Ino;
use lanefs_ondisk::encryption::Policy;
use std::ops::ControlFlow;
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

const KNOWN: usize = 20_000;

/// Returns an image with a directory of [`KNOWN`] files, and options with a small cap.
fn with_many_files() -> (Image, MountOptions) {
    let image = Image::made(&["-N", "32768"], "256M");
    let mount = image.mount(Access::ReadWrite);
    let root = mount.fs().root().unwrap();
    for n in 0..KNOWN {
        mount.fs().create(&root, n.to_string().as_bytes(), &file(0o644)).unwrap();
    }
    drop(root);
    mount.close().unwrap();
    let options = MountOptions {
        cache_bytes: 8 << 20,
        atime: Atime::Noatime,
        commit_interval: Duration::from_secs(3600),
        ..MountOptions::default()
    };
    (image, options)
}

fn named(fs: &Fs, n: usize) -> InodeRef {
    let root = fs.root().unwrap();
    fs.find(&root, n.to_string().as_bytes()).unwrap().expect("the file is there")
}

#[test]
fn what_a_kernel_knows_and_nobody_uses_takes_64_bytes_and_is_loaded_again() {
    let (image, options) = with_many_files();
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let ids: Vec<_> = (0..KNOWN)
        .map(|n| {
            let inode = named(fs, n);
            fs.hold(&inode, 1 + n as u64 % 3);
            (inode.ino(), inode.generation())
        })
        .collect();
    let now = fs.statistics();
    println!(
        "{} in memory, {} aside in {} bytes",
        now.cached_inodes, now.known_inodes, now.known_bytes
    );
    assert!(now.cached_bytes <= now.cache_cap, "{} bytes", now.cached_bytes);
    assert!(now.known_inodes + now.cached_inodes >= KNOWN as u64);
    assert!(now.known_bytes <= 64 * now.known_inodes, "{} bytes", now.known_bytes);
    let root = fs.root().unwrap();
    for (n, (ino, generation)) in ids.iter().enumerate() {
        if n % 2 == 0 {
            fs.unlink(&root, n.to_string().as_bytes()).unwrap();
        }
        let links = fs.get(*ino, Some(*generation)).unwrap().attr().links;
        assert_eq!(links, n as u32 % 2, "file {n}: a known inode is there, also without a name");
        assert!(matches!(fs.get(*ino, Some(generation ^ 1)), Err(Error::Stale)));
    }
    fs.sync().unwrap();
    for (n, (ino, generation)) in ids.iter().enumerate() {
        for left in (0..1 + n as u64 % 3).rev() {
            assert!(fs.get(*ino, Some(*generation)).is_ok(), "file {n} is known {left} times more");
            fs.forget(*ino, 1);
        }
        assert_eq!(fs.get(*ino, Some(*generation)).is_ok(), n % 2 == 1, "file {n}");
    }
    let new = fs.create(&root, b"new", &file(0o644)).unwrap();
    let old = ids.iter().find(|(ino, _)| *ino == new.ino()).expect("a number is used again");
    assert!(matches!(fs.get(old.0, Some(old.1)), Err(Error::Stale)));
    let now = fs.statistics();
    assert_eq!(now.known_inodes, 0, "all is forgotten");
    assert!(now.known_bytes <= 64 << 10, "{} bytes of empty tables", now.known_bytes);
    drop((new, root));
    mount.close().unwrap();
    image.check();
}

/// Waits until the caches of `fs` are within their cap.
fn comes_within_the_cap(fs: &Fs) -> bool {
    let patience = Instant::now() + Duration::from_secs(10);
    while Instant::now() < patience {
        let now = fs.statistics();
        if now.cached_bytes <= now.cache_cap {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn dropping_many_handles_brings_the_caches_within_their_cap() {
    let (image, options) = with_many_files();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let mount = image.mount_with(access, options.clone());
        let held: Vec<_> = (0..KNOWN).map(|n| named(mount.fs(), n)).collect();
        assert!(mount.fs().statistics().cached_inodes >= KNOWN as u64, "held inodes stay");
        drop(held);
        let now = mount.fs().statistics();
        assert!(now.cached_bytes <= now.cache_cap, "{access:?}: {} bytes", now.cached_bytes);
        mount.close().unwrap();
    }
}

#[test]
fn a_commit_brings_the_caches_within_their_cap() {
    let (image, options) = with_many_files();
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    for n in 0..8_000 {
        fs.create(&root, format!("new {n}").as_bytes(), &file(0o644)).unwrap();
    }
    fs.sync().unwrap();
    assert!(comes_within_the_cap(fs), "{} bytes", fs.statistics().cached_bytes);
    drop(root);
    mount.close().unwrap();
    image.check();
}

/// Creates a file that a kernel knows twice, evicts what can go, and removes the file's name.
fn removed_but_known(fs: &Fs, name: &str) -> (Ino, u32) {
    let root = fs.root().unwrap();
    let id = {
        let inode = fs.create(&root, name.as_bytes(), &file(0o644)).unwrap();
        fs.hold(&inode, 2);
        (inode.ino(), inode.generation())
    };
    fs.sync().unwrap();
    for n in 0..200 {
        drop(named(fs, n % 40));
    }
    fs.unlink(&root, name.as_bytes()).unwrap();
    id
}

#[test]
fn look_ups_are_counted_exactly_while_other_threads_evict_and_load() {
    const NAMES: usize = 40;
    let image = Image::made(&[], "64M");
    let options = MountOptions { cache_bytes: 0, ..MountOptions::default() };
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    for n in 0..NAMES {
        fs.create(&root, n.to_string().as_bytes(), &file(0o644)).unwrap();
    }
    fs.sync().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut known = std::collections::VecDeque::new();
                let mut nameless = None;
                for n in 0..20_000 {
                    // What has no name lives by the kernel's look-ups alone.
                    if n % 200 == 0 {
                        nameless = Some(removed_but_known(fs, &format!("known {thread}")));
                    } else if n % 200 == 150
                        && let Some((ino, generation)) = nameless.take()
                    {
                        fs.forget(ino, 1);
                        assert!(fs.get(ino, Some(generation)).is_ok(), "{ino:?} is known");
                        fs.forget(ino, 1);
                        assert!(matches!(fs.get(ino, Some(generation)), Err(Error::Stale)));
                    }
                    let inode = named(fs, (n * (thread + 3)) % NAMES);
                    fs.hold(&inode, 2);
                    known.push_back((inode.ino(), inode.generation()));
                    drop(inode);
                    if known.len() > NAMES / 2 {
                        let (ino, generation) = known.pop_front().unwrap();
                        fs.forget(ino, 1);
                        assert!(fs.get(ino, Some(generation)).is_ok());
                        fs.forget(ino, 1);
                    }
                }
                known.iter().for_each(|(ino, _)| fs.forget(*ino, 2));
            });
        }
    });
    let now = fs.statistics();
    assert_eq!((now.known_inodes, now.unknown_forgets), (0, 0), "all is forgotten, and no more");
    for n in 0..NAMES {
        let (ino, generation) = {
            let inode = named(fs, n);
            (inode.ino(), inode.generation())
        };
        fs.unlink(&root, n.to_string().as_bytes()).unwrap();
        let found = fs.get(ino, Some(generation));
        assert!(matches!(found, Err(Error::Stale)), "file {n} is known, though all is forgotten");
    }
    drop(root);
    mount.close().unwrap();
    image.check();
}

#[test]
fn a_file_of_another_policy_stays_barred_while_the_kernel_knows_it() {
    let image = Image::made(&["-O", "encrypt", "-N", "4096"], "64M");
    let key = MasterKey::new(&[7; 64]).unwrap();
    let policy = Policy::aes_256(*key.identifier());
    let options = MountOptions { cache_bytes: 0, keys: vec![key], ..MountOptions::default() };
    let mount = image.mount_with(Access::ReadWrite, options.clone());
    let (fs, root) = (mount.fs(), mount.fs().root().unwrap());
    let secret = fs.create(&root, b"secret", &directory()).unwrap();
    fs.set_encryption_policy(&secret, &policy).unwrap();
    for n in 0..300 {
        fs.create(&root, n.to_string().as_bytes(), &file(0o644)).unwrap();
    }
    drop((root, secret));
    mount.close().unwrap();
    // An attacker gives a file in plain text an encrypted name.
    image.debugfs(&["ln 7 secret/0123456789abcdef"]);
    let options = MountOptions { keys: Vec::new(), ..options };
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let secret = fs.find(&fs.root().unwrap(), b"secret").unwrap().unwrap();
    let mut shown = Vec::new();
    fs.read_dir(&secret, 2, &mut |entry| {
        shown = entry.name.to_vec();
        ControlFlow::Continue(())
    })
    .unwrap();
    let id = {
        let found = fs.find(&secret, &shown).unwrap().unwrap();
        assert!(matches!(fs.check_contents(&found), Err(Error::ForeignPolicy)));
        fs.hold(&found, 1);
        (found.ino(), found.generation())
    };
    drop(secret);
    fs.sync().unwrap();
    let patience = Instant::now() + Duration::from_secs(10);
    while fs.statistics().known_inodes == 0 && Instant::now() < patience {
        (100..300).for_each(|n| drop(named(fs, n)));
    }
    assert_eq!(fs.statistics().known_inodes, 1, "it is evicted");
    let again = fs.get(id.0, Some(id.1)).unwrap();
    assert!(matches!(fs.check_contents(&again), Err(Error::ForeignPolicy)));
    drop(again);
    fs.forget(id.0, 1);
    assert_eq!(fs.statistics().unknown_forgets, 0);
    mount.close().unwrap();
}
