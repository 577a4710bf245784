//! The usage that quota files record for users, groups and projects (`quota`, `project`).

use lanefs_device::{OverlayDevice, RamDevice};
use lanefs_ext4::{
    Atime, Error, Fallocate, Fs, InodeRef, Mount, MountOptions, NewInode, NewKind, Privilege,
    SetAttr,
};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::quota::{self, Limits};
use lanefs_suites::crash::states::every_state;
use lanefs_suites::image::Image;
use lanefs_suites::library::Library;
use lanefs_suites::op::{File, Kind, Op, Tree};
use std::process::Command;
use std::sync::Arc;

const SETS: [&str; 6] = [
    "-b 1024 -I 256 -O quota,project",
    "-b 4096 -I 256 -O quota,project",
    "-b 1024 -O quota -E quotatype=usrquota",
    "-b 1024 -I 256 -O quota,project,^orphan_file -E quotatype=prjquota",
    "-b 1024 -I 256 -O quota,project,inline_data,^metadata_csum,^metadata_csum_seed",
    "-b 1024 -O quota,^has_journal,^orphan_file",
];

fn at(path: &str) -> File {
    File::At(path.as_bytes().to_vec())
}

fn create(path: &str, kind: Kind, uid: u32, gid: u32) -> Op {
    Op::Create { path: path.as_bytes().to_vec(), kind, permissions: 0o755, uid, gid }
}

fn write(path: &str, offset: u64, len: usize) -> Op {
    Op::Write { file: at(path), offset, len, seed: offset + len as u64 }
}

fn chown(path: &str, uid: u32, gid: u32) -> Op {
    Op::Chown { path: path.as_bytes().to_vec(), uid, gid }
}

fn open(image: &Image) -> Mount {
    let options = MountOptions { atime: Atime::Noatime, ..MountOptions::default() };
    let mount = Mount::open(image.device(), options).expect("Lanefs mounts it");
    assert!(!mount.fs().is_read_only());
    mount
}

/// Returns operations with many owners. They make every kind of change to space and owners.
fn work() -> Vec<Op> {
    let mut ops = vec![create("d", Kind::Directory, 5, 6)];
    for n in 0..60u32 {
        let path = format!("d/{n}");
        ops.push(create(&path, Kind::Regular, n, n << 24 | n));
        ops.push(write(&path, 5000 * u64::from(n), 3000));
        ops.push(create(&format!("d/dir {n}"), Kind::Directory, 1000 + n, 7));
    }
    for n in (0..60u32).step_by(3) {
        let path = format!("d/{n}");
        ops.push(chown(&path, n + 500, u32::MAX - 1));
        let unlink = Op::Unlink { path: format!("d/{}", n + 1).into_bytes() };
        ops.push(unlink);
        ops.push(Op::Truncate { file: at(&format!("d/{}", n + 2)), size: 100 });
        ops.push(Op::SetXattr {
            path: path.into_bytes(),
            name: b"user.x".to_vec(),
            value: vec![7; 600],
            how: lanefs_ext4::SetXattr::Any,
        });
        ops.push(Op::Rmdir { path: format!("d/dir {n}").into_bytes() });
        if n == 30 {
            ops.push(Op::Sync);
        }
    }
    ops.push(create("d/link", Kind::Symlink(vec![b'l'; 200]), 77, 78));
    ops.push(Op::Sync);
    ops
}

fn run_all(fs: &Arc<Fs>, ops: &[Op]) {
    let mut library = Library::new(fs);
    for op in ops {
        if let Err(errno) = library.apply(op) {
            panic!("{op:?}: {}", std::io::Error::from_raw_os_error(errno));
        }
    }
}

/// Returns the lines that debugfs prints for a kind of quota, without the header.
fn listed(image: &Image, kind: &str) -> Vec<Vec<u64>> {
    let request = format!("list_quota {kind}");
    let output = Command::new("debugfs").args(["-R", &request]).arg(image.path()).output();
    let text = String::from_utf8_lossy(&output.expect("debugfs").stdout).into_owned();
    let numbers = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect();
    text.lines().filter_map(numbers).collect()
}

#[test]
fn usage_fits_the_tree_after_every_kind_of_change() {
    for options in SETS {
        let Some(image) = Image::make(options, "32M") else { return };
        let mount = open(&image);
        run_all(mount.fs(), &work());
        mount.close().expect("it unmounts");
        image.assert_clean(options);
        // The second mount reads the usage that the first mount wrote, and removes everything.
        let mount = open(&image);
        let mut ops = vec![Op::Unlink { path: b"d/link".to_vec() }];
        for n in 0..60 {
            if n % 3 != 0 {
                ops.push(Op::Rmdir { path: format!("d/dir {n}").into_bytes() });
            }
            if n % 3 != 1 {
                ops.push(Op::Unlink { path: format!("d/{n}").into_bytes() });
            }
        }
        ops.push(create("one", Kind::Regular, 1 << 31, 3));
        ops.push(write("one", 0, 9000));
        run_all(mount.fs(), &ops);
        mount.close().expect("it unmounts");
        image.assert_clean(&format!("{options}, emptied"));
        if options.contains("usrquota") {
            let used = listed(&image, "user").into_iter().find(|line| line[0] == 1 << 31);
            assert_eq!(used.expect("an entry")[1..5], [9 * 1024, 0, 0, 1]);
        }
    }
}

#[test]
fn a_wrong_usage_is_found_by_the_oracle() {
    let Some(image) = Image::make(SETS[0], "32M") else { return };
    // When debugfs makes an inode, it does not add the inode to the usage.
    let request = "mkdir uncounted";
    let made = Command::new("debugfs").args(["-w", "-R", request]).arg(image.path()).output();
    assert!(made.expect("debugfs").status.success());
    let checked = Command::new("e2fsck").args(["-fn"]).arg(image.path()).output().expect("e2fsck");
    assert!(!checked.status.success(), "e2fsck does not check the usage");
}

#[test]
fn open_files_without_names_count_until_they_are_closed() {
    let Some(image) = Image::make(SETS[0], "32M") else { return };
    let device = OverlayDevice::new(image.device(), u64::MAX);
    let mount = Mount::open(Arc::new(device), MountOptions::default()).expect("it mounts");
    let fs = mount.fs();
    run_all(fs, &[create("f", Kind::Regular, 9, 9), write("f", 0, 50_000), Op::Sync]);
    let held = Library::new(fs).resolve(b"f").expect("a file");
    run_all(fs, &[Op::Unlink { path: b"f".to_vec() }, Op::Sync]);
    assert_eq!(used(fs, 9), (49 * 1024, 1));
    drop(held);
    run_all(fs, &[Op::Sync]);
    assert_eq!(used(fs, 9), (0, 0));
    mount.close().expect("it unmounts");
}

#[test]
fn files_without_names_that_a_crash_left_count_until_the_next_mount() {
    for options in [SETS[0], SETS[3]] {
        let Some(image) = Image::make(options, "32M") else { return };
        let device = Arc::new(OverlayDevice::new(image.device(), u64::MAX));
        let mount = Mount::open(device.clone(), MountOptions::default()).expect("it mounts");
        let fs = mount.fs();
        run_all(fs, &[create("f", Kind::Regular, 9, 9), write("f", 0, 50_000), Op::Sync]);
        let held = Library::new(fs).resolve(b"f").expect("a file");
        run_all(fs, &[Op::Unlink { path: b"f".to_vec() }, Op::Sync]);
        let crashed = device.fork();
        drop(held);
        mount.close().expect("it unmounts");
        let left = Image::empty();
        RamDevice::copy_of(&crashed).and_then(|ram| ram.to_file(left.path())).expect("a copy");
        let mount = open(&left);
        run_all(mount.fs(), &[Op::Sync]);
        if options == SETS[0] {
            assert_eq!(used(mount.fs(), 9), (0, 0));
        }
        mount.close().expect("it unmounts");
        left.assert_clean(options);
    }
}

/// Returns how many bytes and inodes a user has, as of the last commit.
fn used(fs: &Arc<Fs>, uid: u32) -> (u64, u64) {
    let report = fs.quotas().expect("the quota files are read");
    let user = report.iter().find(|file| file.kind == quota::Kind::User);
    let entries = &user.expect("users are counted").entries;
    let usage = entries.iter().find(|(id, _)| *id == uid).map(|(_, quota)| quota.usage);
    usage.map_or((0, 0), |usage| (usage.bytes, usage.inodes))
}

fn limited(image: &Image, limits: Limits) {
    let mount = open(image);
    for kind in [quota::Kind::User, quota::Kind::Group, quota::Kind::Project] {
        mount.fs().set_quota(kind, 1, limits).expect("the limits are set");
    }
    mount.close().expect("it unmounts");
}

fn obeying(image: &Image, kind: quota::Kind) -> Mount {
    let options = MountOptions { limits: vec![kind], ..MountOptions::default() };
    Mount::open(image.device(), options).expect("Lanefs mounts it")
}

#[test]
fn a_hard_limit_ends_writes_and_creations_where_it_is() {
    for kind in [quota::Kind::User, quota::Kind::Project] {
        let Some(image) = Image::make(SETS[0], "32M") else { return };
        limited(&image, Limits { kib_hard: 100, inodes_hard: 3, ..Limits::default() });
        let mount = obeying(&image, kind);
        let fs = mount.fs();
        let root = fs.root().expect("the root");
        let dir = new_in(fs, &root, "d", NewKind::Directory);
        let flags = InodeFlags::PROJINHERIT.bits();
        let set = SetAttr { project: Some(1), flags: Some(flags), ..SetAttr::default() };
        fs.set_attr(&dir, &set).expect("the project is set");
        let file = new_in(fs, &dir, "f", NewKind::Regular);
        let data = vec![7; 300 << 10];
        let by = Privilege::Ordinary;
        // One block of the limit is taken by the directory.
        assert_eq!(fs.write_at(&file, 0, &data, by).expect("a part is written"), 99 << 10);
        let more = fs.write_at(&file, 99 << 10, &data, by);
        assert!(matches!(more, Err(Error::OverQuota)), "{more:?}");
        assert_eq!(fs.write_at(&file, 0, &data[..1000], by).expect("an overwrite"), 1000);
        let space = fs.fallocate(&file, Fallocate::Allocate, 0, 200 << 10, by);
        assert!(matches!(space, Err(Error::OverQuota)), "{space:?}");
        fs.write_at(&file, 99 << 10, &data[..2048], Privilege::Root).expect("root is not limited");
        let size = SetAttr { size: Some(10 << 10), ..SetAttr::default() };
        fs.set_attr(&file, &size).expect("a truncation");
        let again = fs.write_at(&file, 10 << 10, &data, by).expect("the space can be used again");
        assert_eq!(again, 89 << 10);
        let last = new_in(fs, &dir, "g", NewKind::Regular);
        let new = NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 1, gid: 2 };
        let fourth = fs.create(&dir, b"h", &new);
        assert!(matches!(fourth, Err(Error::OverQuota)), "{:?}", fourth.err());
        let unnamed = fs.create_unnamed(&dir, &new);
        assert!(matches!(unnamed, Err(Error::OverQuota)), "{:?}", unnamed.err());
        drop(last);
        run_all(fs, &[Op::Unlink { path: b"d/g".to_vec() }]);
        drop(new_in(fs, &dir, "h", NewKind::Regular));
        let pipe = fs.create(&dir, b"p", &NewInode { kind: NewKind::Fifo, uid: 0, ..new });
        pipe.expect("root is not limited");
        drop((root, dir, file));
        mount.close().expect("it unmounts");
        image.assert_clean("limited");
    }
}

#[test]
fn limits_that_a_mount_sets_hold_at_once() {
    let Some(image) = Image::make(SETS[0], "32M") else { return };
    limited(&image, Limits { kib_hard: 10, ..Limits::default() });
    let mount = obeying(&image, quota::Kind::User);
    let fs = mount.fs();
    let root = fs.root().expect("the root");
    let file = new_in(fs, &root, "f", NewKind::Regular);
    let write = |offset| fs.write_at(&file, offset, &[1; 100 << 10], Privilege::Ordinary);
    assert_eq!(write(0).expect("a part is written"), 10 << 10);
    let raised = Limits { kib_hard: 60, kib_soft: 1, ..Limits::default() };
    fs.set_quota(quota::Kind::User, 1, raised).expect("the limits are set");
    assert_eq!(write(10 << 10).expect("a part is written"), 50 << 10);
    fs.sync().expect("a commit");
    let ends = || {
        let report = fs.quotas().expect("the quota files are read");
        let users = report.into_iter().find(|file| file.kind == quota::Kind::User);
        let entry = users.and_then(|file| file.entries.into_iter().find(|(id, _)| *id == 1));
        entry.map(|(_, quota)| (quota.limits, quota.bytes_until != 0))
    };
    assert_eq!(ends(), Some((raised, true)), "the grace time of the soft limit runs");
    let none = Limits { kib_hard: 1000, ..Limits::default() };
    fs.set_quota(quota::Kind::User, 1, none).expect("the limits are set");
    fs.write_at(&file, 60 << 10, &[1; 1 << 10], Privilege::Ordinary).expect("room");
    fs.sync().expect("a commit");
    assert_eq!(ends(), Some((none, false)), "without a soft limit no grace time runs");
    drop((root, file));
    mount.close().expect("it unmounts");
    image.assert_clean("new limits");
}

#[test]
fn a_file_does_not_join_a_project_beyond_its_limit() {
    let Some(image) = Image::make(SETS[0], "32M") else { return };
    limited(&image, Limits { kib_hard: 10, ..Limits::default() });
    let mount = obeying(&image, quota::Kind::Project);
    let fs = mount.fs();
    let root = fs.root().expect("the root");
    for (name, len, fits) in [("small", 6000, true), ("large", 6000, false), ("tiny", 4096, true)] {
        let file = new_in(fs, &root, name, NewKind::Regular);
        fs.write_at(&file, 0, &vec![1; len], Privilege::Ordinary).expect("no limit yet");
        let joined = fs.set_attr(&file, &SetAttr { project: Some(1), ..SetAttr::default() });
        assert_eq!(joined.is_ok(), fits, "{name}: {:?}", joined.err());
        assert_eq!(file.project(), u32::from(fits));
        let set = SetAttr { project: Some(1), ..SetAttr::default() };
        fs.set_attr_as(&file, Privilege::Root, |_| Ok(Some(set))).expect("root is not limited");
        assert_eq!(file.project(), 1);
        let left = SetAttr { project: Some(u32::from(fits)), ..SetAttr::default() };
        fs.set_attr(&file, &left).expect("no limit");
    }
    drop(root);
    mount.close().expect("it unmounts");
    image.assert_clean("joined");
}

#[test]
fn threads_never_use_more_than_the_limit_of_their_owner() {
    let Some(image) = Image::make("-b 1024 -I 256 -O quota,project", "64M") else { return };
    limited(&image, Limits { kib_hard: 2000, inodes_hard: 300, ..Limits::default() });
    let mount = obeying(&image, quota::Kind::User);
    let fs = mount.fs();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let root = fs.root().expect("the root");
                for n in 0..120 {
                    let kind = NewKind::Regular;
                    let new = NewInode { kind, permissions: 0o644, umask: 0, uid: 1, gid: 1 };
                    let name = format!("{thread} {n}");
                    match fs.create(&root, name.as_bytes(), &new) {
                        Err(Error::OverQuota) => continue,
                        made => {
                            let file = made.expect("room");
                            let data = vec![1; 10_000];
                            match fs.write_at(&file, 0, &data, Privilege::Ordinary) {
                                Ok(_) | Err(Error::OverQuota) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                }
            });
        }
    });
    fs.sync().expect("a commit");
    let (bytes, inodes) = used(fs, 1);
    assert!(bytes <= 2000 << 10 && inodes <= 300, "{bytes} bytes, {inodes} inodes");
    // The usage must be close to the limits. A lower usage would show that operations were refused
    // needlessly.
    assert!(bytes > 1900 << 10 && inodes == 300, "{bytes} bytes, {inodes} inodes");
    mount.close().expect("it unmounts");
    image.assert_clean("limited threads");
}

#[test]
fn limits_of_owners_without_a_file_are_refused() {
    let Some(image) = Image::make(SETS[2], "32M") else { return };
    let options = MountOptions { limits: vec![quota::Kind::Group], ..MountOptions::default() };
    let refused = Mount::open(image.device(), options).err().expect("a refusal");
    assert!(refused.to_string().contains("limits of a group"), "{refused}");
}

fn new_in(fs: &Arc<Fs>, dir: &InodeRef, name: &str, kind: NewKind<'_>) -> InodeRef {
    let new = NewInode { kind, permissions: 0o755, umask: 0, uid: 1, gid: 2 };
    fs.create(dir, name.as_bytes(), &new).expect("it is made")
}

#[test]
fn directories_pass_their_project_on() {
    let Some(image) = Image::make(SETS[1], "32M") else { return };
    let mount = open(&image);
    let fs = mount.fs();
    let root = fs.root().expect("the root");
    let dir = new_in(fs, &root, "project", NewKind::Directory);
    let flags = InodeFlags::PROJINHERIT.bits();
    let set = SetAttr { project: Some(42), flags: Some(flags), ..SetAttr::default() };
    fs.set_attr(&dir, &set).expect("the project is set");
    let file = new_in(fs, &dir, "file", NewKind::Regular);
    let below = new_in(fs, &dir, "below", NewKind::Directory);
    let deep = new_in(fs, &below, "deep", NewKind::Regular);
    assert_eq!([&dir, &file, &below, &deep].map(|inode| inode.project()), [42; 4]);
    assert_eq!(below.attr().flags & flags, flags);
    assert_eq!(file.attr().flags & flags, 0);
    let other = new_in(fs, &root, "other", NewKind::Regular);
    assert_eq!(other.project(), 0);
    use lanefs_ext4::Rename;
    let moved = fs.rename(&root, b"other", &dir, b"moved", Rename::Replace);
    assert!(matches!(moved, Err(Error::OtherProject)), "{moved:?}");
    let swapped = fs.rename(&dir, b"file", &root, b"other", Rename::Exchange);
    assert!(matches!(swapped, Err(Error::OtherProject)), "{swapped:?}");
    assert!(matches!(fs.link(&other, &dir, b"linked"), Err(Error::OtherProject)));
    fs.rename(&dir, b"file", &root, b"file", Rename::Replace)
        .expect("it leaves the project's tree");
    assert_eq!(file.project(), 42);
    fs.rename(&root, b"file", &below, b"file", Rename::Replace).expect("it comes back");
    fs.write_at(&file, 0, &[1; 10_000], Privilege::Root).expect("a write");
    drop((root, dir, file, below, deep, other));
    mount.close().expect("it unmounts");
    image.assert_clean("projects");
    let used = listed(&image, "project").into_iter().find(|line| line[0] == 42);
    assert_eq!(used.expect("an entry")[1..5], [12 * 1024 + 2 * 4096, 0, 0, 4]);
}

#[test]
#[ignore = "long: hundreds of crash states"]
fn usage_fits_the_tree_after_a_crash_at_every_write() {
    for options in [SETS[0], SETS[3]] {
        let Some(image) = Image::make(&format!("{options} -J size=1 -N 600"), "14M") else {
            return;
        };
        let ram = RamDevice::from_file(image.path()).expect("the image is read");
        let base = OverlayDevice::new(Arc::new(ram), u64::MAX);
        let work = |fs: &Arc<Fs>| {
            let mut library = Library::new(fs);
            let mut ops = work();
            ops.truncate(40);
            for (n, op) in ops.iter().enumerate() {
                library.act(op)?;
                if n % 4 == 0 {
                    library.act(&Op::Sync)?;
                }
            }
            Ok(())
        };
        let states = every_state(base, &work, &|_| Ok(()));
        let states = states.unwrap_or_else(|why| panic!("{options}: {why}"));
        println!("{options}: {states} crash states");
        assert!(states > 30, "{states}");
    }
}

#[test]
fn threads_with_many_owners_keep_the_usage_right() {
    let Some(image) = Image::make("-b 1024 -I 256 -J size=1 -O quota,project", "64M") else {
        return;
    };
    let mount = open(&image);
    run_all(mount.fs(), &[create("d", Kind::Directory, 0, 0)]);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let fs = mount.fs();
            scope.spawn(move || {
                for n in 0..150u32 {
                    let path = format!("d/{thread} {n}");
                    // All threads add the same new owners at the same time.
                    let ops = [
                        create(&path, Kind::Regular, n / 2, n << 8),
                        write(&path, 0, 2000),
                        chown(&path, n / 3, 1 << 20 | n),
                        Op::Unlink { path: path.clone().into_bytes() },
                    ];
                    let some = if n % 5 == 0 { 4 } else { 3 };
                    run_all(fs, &ops[..some]);
                }
            });
        }
    });
    mount.close().expect("it unmounts");
    image.assert_clean("changed by threads");
}
