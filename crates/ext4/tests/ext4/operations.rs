//! Runs all operations on images created by mke2fs, and checks them with e2fsck.

use crate::image::{Image, directory, file};
use lanefs_ext4::{
    Access, Atime, Error, Fallocate, Fs, InodeRef, MountOptions, Privilege, Rename, SetAttr,
    SetTime, SyncMode,
};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{FileType, Time};
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Returns images with the most common sets of options.
fn images() -> Vec<(&'static str, Image)> {
    vec![
        ("1 KiB blocks", Image::made(&[], "64M")),
        ("4 KiB blocks", Image::made(&["-b", "4096"], "256M")),
        ("upstream", Image::made(&["-b", "4096", "-O", "orphan_file,metadata_csum_seed"], "128M")),
        ("2 KiB blocks, no checksums", Image::made(&["-b", "2048", "-O", "^metadata_csum"], "64M")),
        ("no journal", Image::made(&["-O", "^has_journal"], "32M")),
        ("small inodes", Image::made(&["-I", "128", "-O", "^64bit"], "32M")),
    ]
}

fn names(fs: &Fs, dir: &InodeRef) -> Vec<String> {
    let mut names = Vec::new();
    fs.read_dir(dir, 0, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        ControlFlow::Continue(())
    })
    .unwrap();
    names.sort();
    names
}

fn find(fs: &Fs, dir: &InodeRef, name: &str) -> InodeRef {
    let named = fs.lookup(dir, name.as_bytes()).unwrap().expect(name);
    fs.get(named.ino, None).unwrap()
}

fn contents(fs: &Fs, inode: &InodeRef) -> Vec<u8> {
    let mut bytes = vec![0xee; inode.attr().size as usize];
    let read = fs.read_at(inode, 0, &mut bytes).unwrap();
    assert_eq!(read, bytes.len());
    bytes
}

#[test]
fn an_empty_image_is_mounted_and_left_clean() {
    for (what, image) in images() {
        println!("{what}");
        let mount = image.mount(Access::ReadWrite);
        let root = mount.fs().root().unwrap();
        assert_eq!(names(mount.fs(), &root), [".", "..", "lost+found"]);
        drop(root);
        mount.close().unwrap();
        image.check();
    }
}

#[test]
fn files_and_directories_survive_a_remount() {
    for (what, image) in images() {
        println!("{what}");
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs();
        let root = fs.root().unwrap();
        let dir = fs.create(&root, b"dir", &directory()).unwrap();
        for n in 0..300 {
            let name = format!("a file with a name of some length, number {n}");
            let inode = fs.create(&dir, name.as_bytes(), &file(0o644)).unwrap();
            let data = vec![n as u8; n * 37];
            assert_eq!(fs.write_at(&inode, 0, &data, Privilege::Root).unwrap(), data.len());
        }
        for n in (0..300).step_by(3) {
            let name = format!("a file with a name of some length, number {n}");
            fs.unlink(&dir, name.as_bytes()).unwrap();
        }
        fs.fsync(&dir, SyncMode::Full).unwrap();
        drop((root, dir));
        mount.close().unwrap();
        image.check();

        let mount = image.mount(Access::ReadOnly);
        let fs = mount.fs();
        let dir = find(fs, &fs.root().unwrap(), "dir");
        assert_eq!(names(fs, &dir).len(), 202);
        for n in 0..300 {
            let name = format!("a file with a name of some length, number {n}");
            if n % 3 == 0 {
                assert!(fs.lookup(&dir, name.as_bytes()).unwrap().is_none());
            } else {
                assert_eq!(contents(fs, &find(fs, &dir, &name)), vec![n as u8; n * 37]);
            }
        }
    }
}

#[test]
fn sparse_files_shrink_grow_and_are_punched() {
    for (what, image) in images() {
        println!("{what}");
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs();
        let root = fs.root().unwrap();
        let inode = fs.create(&root, b"f", &file(0o600)).unwrap();
        let mut model = vec![0u8; 0];
        let put = |model: &mut Vec<u8>, at: usize, data: &[u8]| {
            model.resize(model.len().max(at + data.len()), 0);
            model[at..at + data.len()].copy_from_slice(data);
        };
        for (at, len) in [(100_000, 5000), (0, 10), (50_000, 1), (104_990, 3000), (3000, 70_000)] {
            let data: Vec<u8> = (0..len).map(|n| (n * 7 + at) as u8 | 1).collect();
            fs.write_at(&inode, at as u64, &data, Privilege::Root).unwrap();
            put(&mut model, at, &data);
            assert!(contents(fs, &inode) == model, "write at {at}");
        }
        let punch = (20_001, 30_000);
        fs.fallocate(&inode, Fallocate::PunchHole, 20_001, 30_000, Privilege::Root).unwrap();
        model[punch.0..punch.0 + punch.1].fill(0);
        assert!(contents(fs, &inode) == model, "punch");
        fs.fallocate(&inode, Fallocate::ZeroRange, 60_000, 8000, Privilege::Root).unwrap();
        model[60_000..68_000].fill(0);
        assert!(contents(fs, &inode) == model, "zero");
        for size in [70_123, 90_000, 1_000, 200_000, 0, 777] {
            fs.set_attr(&inode, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
            model.resize(size as usize, 0);
            assert!(contents(fs, &inode) == model, "size {size}");
        }
        fs.fallocate(&inode, Fallocate::AllocateKeepSize, 0, 500_000, Privilege::Root).unwrap();
        assert!(contents(fs, &inode) == model);
        drop((root, inode));
        mount.close().unwrap();
        image.check();
    }
}

#[test]
fn names_move_between_directories() {
    for (what, image) in images() {
        println!("{what}");
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs();
        let root = fs.root().unwrap();
        let a = fs.create(&root, b"a", &directory()).unwrap();
        let b = fs.create(&root, b"b", &directory()).unwrap();
        let sub = fs.create(&a, b"sub", &directory()).unwrap();
        fs.create(&sub, b"leaf", &file(0o644)).unwrap();
        fs.rename(&a, b"sub", &b, b"moved", Rename::Replace).unwrap();
        assert_eq!(fs.lookup(&sub, b"..").unwrap().unwrap().ino, b.ino());
        assert_eq!((a.attr().links, b.attr().links), (2, 3));
        let into_itself = fs.rename(&root, b"b", &sub, b"x", Rename::Replace);
        assert!(matches!(into_itself, Err(Error::InvalidArgument(_))), "{into_itself:?}");
        fs.rename(&root, b"a", &b, b"moved", Rename::Exchange).unwrap();
        assert_eq!(names(fs, &root), [".", "..", "a", "b", "lost+found"]);
        assert_eq!(names(fs, &find(fs, &root, "a")), [".", "..", "leaf"]);
        let no = fs.rename(&root, b"a", &root, b"b", Rename::NoReplace);
        assert!(matches!(no, Err(Error::Exists)));
        let full = fs.rmdir(&root, b"b");
        assert!(matches!(full, Err(Error::NotEmpty)));
        fs.rmdir(&b, b"moved").unwrap();
        fs.rmdir(&root, b"b").unwrap();
        let leaf = find(fs, &sub, "leaf");
        fs.link(&leaf, &root, b"second").unwrap();
        assert_eq!(leaf.attr().links, 2);
        fs.unlink(&sub, b"leaf").unwrap();
        fs.unlink(&root, b"second").unwrap();
        assert_eq!(leaf.attr().links, 0);
        let again = fs.link(&leaf, &root, b"third");
        assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
        let unnamed = fs.create_unnamed(&root, &file(0o600)).unwrap();
        fs.link(&unnamed, &root, b"named").unwrap();
        fs.unlink(&root, b"named").unwrap();
        fs.write_at(&leaf, 0, b"still open", Privilege::Root).unwrap();
        assert_eq!(contents(fs, &leaf), b"still open");
        drop((root, a, b, sub, leaf, unnamed));
        mount.close().unwrap();
        image.check();
    }
}

/// The kernel's ext4 returns the same errors.
#[test]
fn a_file_without_a_name_is_not_created_in_a_removed_or_immutable_directory() {
    let image = Image::made(&[], "32M");
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let dir = fs.create(&root, b"d", &directory()).unwrap();
    let flagged = |flags: InodeFlags| {
        let set = SetAttr { flags: Some(flags.bits()), ..SetAttr::default() };
        fs.set_attr(&dir, &set).unwrap();
        fs.create_unnamed(&dir, &file(0o600))
    };
    let immutable = flagged(InodeFlags::IMMUTABLE);
    assert!(matches!(immutable, Err(Error::NotPermitted)), "{:?}", immutable.err());
    flagged(InodeFlags::APPEND).unwrap();
    flagged(InodeFlags::empty()).unwrap();
    fs.rmdir(&root, b"d").unwrap();
    let removed = fs.create_unnamed(&dir, &file(0o600));
    assert!(matches!(removed, Err(Error::NotPermitted)), "{:?}", removed.err());
    drop((root, dir, immutable, removed));
    mount.close().unwrap();
    image.check();
}

/// In a directory with an index, the entry ".." is in the root block of the index. A move to
/// another parent changes it there.
#[test]
fn large_directories_move_and_are_exchanged_between_directories() {
    for (what, image) in images() {
        println!("{what}");
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs();
        let root = fs.root().unwrap();
        let [from, to] =
            ["from", "to"].map(|name| fs.create(&root, name.as_bytes(), &directory()).unwrap());
        let large = |dir: &InodeRef, name: &str| {
            let large = fs.create(dir, name.as_bytes(), &directory()).unwrap();
            for n in 0..300 {
                fs.create(&large, format!("a name of some length {n}").as_bytes(), &file(0o644))
                    .unwrap();
            }
            large
        };
        let (one, other) = (large(&from, "one"), large(&to, "other"));
        fs.rename(&from, b"one", &to, b"one", Rename::NoReplace).unwrap();
        assert_eq!(find(fs, &one, "..").ino(), to.ino());
        fs.rename(&to, b"one", &from, b"back", Rename::Replace).unwrap();
        fs.rename(&from, b"back", &to, b"other", Rename::Exchange).unwrap();
        assert_eq!(find(fs, &one, "..").ino(), to.ino());
        assert_eq!(find(fs, &other, "..").ino(), from.ino());
        assert_eq!((names(fs, &one).len(), names(fs, &other).len()), (302, 302));
        drop((one, other, from, to, root));
        mount.close().unwrap();
        image.check();
    }
}

#[test]
fn inodes_made_and_removed_at_once_leave_memory() {
    let (_, image) = images().swap_remove(1);
    let mount = image.mount(Access::ReadWrite);
    let root = mount.fs().root().unwrap();
    let made_and_removed = || {
        let inode = mount.fs().create(&root, b"again", &file(0o600)).unwrap();
        let made = Arc::downgrade(&inode);
        drop(inode);
        mount.fs().unlink(&root, b"again").unwrap();
        made
    };
    let made: Vec<std::sync::Weak<_>> = (0..2000).map(|_| made_and_removed()).collect();
    // An inode on a transaction's list would stay in memory until the commit, which is seconds
    // away. An inode that is on no list is freed when no thread that reads the map of loaded
    // inodes can see it any more. Such inodes are freed in batches (epoch-based reclamation), so
    // some of them may still be in memory here: more if threads of other tests read meanwhile.
    let left = || made.iter().filter(|inode| inode.strong_count() > 0).count();
    for _ in 0..100 {
        if left() < 500 {
            break;
        }
        made_and_removed();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(left() < 500, "{} of 2000 dead inodes are still in memory", left());
    drop(root);
    mount.close().unwrap();
    image.check();
}

#[test]
fn a_full_image_gives_enospc_and_all_its_space_back() {
    let image = Image::made(&["-b", "1024"], "8M");
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let before = fs.stat_fs();
    let root = fs.root().unwrap();
    for round in 0..3 {
        // Each round creates a directory and deletes it at the end, because a directory never frees
        // blocks before it is deleted.
        let dir = fs.create(&root, b"dir", &directory()).unwrap();
        let mut n = 0;
        let error = loop {
            let created = fs.create(&dir, format!("f{n}").as_bytes(), &file(0o644));
            let inode = match created {
                Ok(inode) => inode,
                Err(error) => break error,
            };
            n += 1;
            match fs.write_at(&inode, 0, &vec![7; 50_000], Privilege::Ordinary) {
                Ok(50_000) => {}
                Ok(_) => break Error::NoSpace,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NoSpace), "round {round}: {error}");
        for n in 0..n {
            fs.unlink(&dir, format!("f{n}").as_bytes()).unwrap();
        }
        fs.rmdir(&root, b"dir").unwrap();
    }
    fs.sync().unwrap();
    assert_eq!(fs.stat_fs().blocks_free, before.blocks_free);
    assert_eq!(fs.stat_fs().inodes_free, before.inodes_free);
    drop(root);
    mount.close().unwrap();
    image.check();
}

#[test]
fn unnamed_open_files_are_deleted_after_a_kill() {
    for (what, image) in images().into_iter().filter(|(what, _)| *what != "no journal") {
        println!("{what}");
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs().clone();
        let root = fs.root().unwrap();
        let before = fs.stat_fs();
        let held: Vec<InodeRef> = (0..20)
            .map(|n| {
                let name = format!("open {n}");
                let inode = fs.create(&root, name.as_bytes(), &file(0o644)).unwrap();
                fs.write_at(&inode, 0, &vec![1; 300_000], Privilege::Root).unwrap();
                fs.unlink(&root, name.as_bytes()).unwrap();
                inode
            })
            .collect();
        fs.sync().unwrap();
        let killed = image.copied();
        drop((held, root, fs));
        mount.close().unwrap();
        image.check();
        let image = killed;
        let mount = image.mount(Access::ReadWrite);
        mount.fs().sync().unwrap();
        assert_eq!(mount.fs().stat_fs().blocks_free, before.blocks_free);
        mount.close().unwrap();
        image.check();
    }
}

#[test]
fn many_threads_change_one_file_system() {
    for (what, image) in images() {
        println!("{what}");
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs();
        let root = fs.root().unwrap();
        std::thread::scope(|scope| {
            for t in 0..4u8 {
                let root = &root;
                scope.spawn(move || {
                    let name = format!("thread {t}");
                    let dir = fs.create(root, name.as_bytes(), &directory()).unwrap();
                    for n in 0..150 {
                        let name = format!("{n}");
                        let inode = fs.create(&dir, name.as_bytes(), &file(0o644)).unwrap();
                        fs.write_at(&inode, 0, &vec![t; n * 10], Privilege::Root).unwrap();
                        if n % 50 == 7 {
                            fs.fsync(&inode, SyncMode::Full).unwrap();
                        }
                        // All threads share one of the directories.
                        let shared = format!("{t}-{n}");
                        fs.rename(&dir, name.as_bytes(), root, shared.as_bytes(), Rename::Replace)
                            .unwrap();
                        if n % 2 == 0 {
                            fs.unlink(root, shared.as_bytes()).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(names(fs, &root).len(), 3 + 4 + 300);
        for t in 0..4u8 {
            for n in (1..150).step_by(2) {
                let inode = find(fs, &root, &format!("{t}-{n}"));
                assert_eq!(contents(fs, &inode), vec![t; n * 10]);
            }
        }
        drop(root);
        mount.close().unwrap();
        image.check();
    }
}

/// Without the feature `filetype`, a look-up reads the type from the inode, which may be deleted
/// meanwhile.
#[test]
fn a_name_that_always_exists_is_found_while_others_rename_over_it() {
    for types in ["filetype", "^filetype"] {
        let image = Image::made(&["-O", types], "16M");
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs();
        let root = fs.root().unwrap();
        fs.create(&root, b"always", &file(0o644)).unwrap();
        let ended = AtomicBool::new(false);
        let rename = || {
            for _ in 0..1000 {
                fs.create(&root, b"new", &file(0o644)).unwrap();
                fs.rename(&root, b"new", &root, b"always", Rename::Replace).unwrap();
                // The freed inode becomes a directory.
                fs.create(&root, b"d", &directory()).unwrap();
                fs.rmdir(&root, b"d").unwrap();
            }
        };
        std::thread::scope(|scope| {
            let renamed = scope.spawn(|| {
                let result = std::panic::catch_unwind(AssertUnwindSafe(rename));
                ended.store(true, Ordering::Release);
                result.unwrap();
            });
            while !ended.load(Ordering::Acquire) {
                let named = fs.lookup(&root, b"always").expect(types).expect("always there");
                assert_eq!(named.file_type, FileType::Regular, "{types}");
                assert!(fs.find(&root, b"always").expect(types).is_some());
            }
            renamed.join().unwrap();
        });
        drop(root);
        mount.close().unwrap();
        image.check();
    }
}

#[test]
fn the_access_time_of_a_file_marked_so_never_moves() {
    let image = Image::made(&[], "16M");
    let options = MountOptions { atime: Atime::Strict, ..MountOptions::default() };
    let mount = image.mount_with(Access::ReadWrite, options);
    let fs = mount.fs();
    let file = fs.create(&fs.root().unwrap(), b"file", &file(0o644)).unwrap();
    let long_ago = Time { secs: 1000, nanos: 0 };
    let mark = |no_atime: u32| {
        let (flags, atime) = (Some(no_atime), Some(SetTime::At(long_ago)));
        fs.set_attr(&file, &SetAttr { flags, atime, ..SetAttr::default() }).unwrap();
        fs.touch_atime(&file).unwrap();
        file.attr().atime
    };
    assert_eq!(mark(InodeFlags::NOATIME.bits()), long_ago);
    assert!(mark(0) > long_ago, "without the mark it moves");
    drop(file);
    mount.close().unwrap();
    image.check();
}

#[test]
fn a_truncation_to_the_present_size_frees_the_blocks_after_the_end() {
    for (what, image) in images() {
        let mount = image.mount(Access::ReadWrite);
        let fs = mount.fs();
        let inode = fs.create(&fs.root().unwrap(), b"file", &file(0o644)).unwrap();
        for size in [0, 5000] {
            fs.write_at(&inode, 0, &vec![7; size], Privilege::Root).unwrap();
            fs.release(&inode);
            let before = inode.attr().sectors;
            let how = Fallocate::AllocateKeepSize;
            fs.fallocate(&inode, how, 0, 200 << 10, Privilege::Root).unwrap();
            assert!(inode.attr().sectors > before, "{what}");
            let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
            fs.set_attr(&inode, &set).unwrap();
            assert_eq!((inode.attr().sectors, inode.attr().size), (before, size as u64), "{what}");
            assert_eq!(contents(fs, &inode), vec![7; size], "{what}");
        }
        drop(inode);
        mount.close().unwrap();
        image.check();
    }
}

#[test]
fn overwrites_in_one_second_change_an_inode_without_nanoseconds_once() {
    let image = Image::made(&["-I", "128", "-O", "^64bit"], "32M");
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let inode = fs.create(&fs.root().unwrap(), b"file", &file(0o644)).unwrap();
    let overwrite = || {
        fs.write_at(&inode, 0, &[1; 4096], Privilege::Root).unwrap();
        fs.sync().unwrap();
        fs.statistics().journal.commits
    };
    overwrite();
    // Some overwrites may be in different seconds, but not all of them.
    let unchanged = (0..5).filter(|_| overwrite() == overwrite()).count();
    assert!(unchanged >= 3, "{unchanged} of 5 overwrites changed nothing");
    drop(inode);
    mount.close().unwrap();
    image.check();
}

#[test]
fn an_inode_without_extra_fields_gets_them_for_late_times() {
    let image = Image::made(&[], "32M");
    let mount = image.mount(Access::ReadWrite);
    let root = mount.fs().root().unwrap();
    mount.fs().create(&root, b"f", &file(0o644)).unwrap();
    drop(root);
    mount.close().unwrap();
    image.debugfs(&["sif /f extra_isize 0"]);
    let late = Time { secs: 4_985_000_000, nanos: 123_456_789 };
    let mount = image.mount(Access::ReadWrite);
    let found = mount.fs().find(&mount.fs().root().unwrap(), b"f").unwrap().unwrap();
    let set = SetAttr { mtime: Some(SetTime::At(late)), ..SetAttr::default() };
    mount.fs().set_attr(&found, &set).unwrap();
    drop(found);
    mount.close().unwrap();
    let mount = image.mount(Access::ReadOnly);
    let found = mount.fs().find(&mount.fs().root().unwrap(), b"f").unwrap().unwrap();
    assert_eq!(found.attr().mtime, late);
    drop(found);
    mount.close().unwrap();
    image.check();
}
