//! Tests of the placement of files: in which groups their inodes and blocks are, when one thread or
//! many threads create and change the files.

use crate::image::{Image, directory, file};
use lanefs_ext4::allocation::Allocation;
use lanefs_ext4::{Access, Fallocate, Fs, InodeRef, MountOptions, Privilege, SetAttr};
use lanefs_lanes::sync::unscheduled::Barrier;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const WORKERS: usize = 16;

/// As many workers as there are lanes.
const MANY: usize = lanefs_lanes::MAX_LANES;

fn image() -> Image {
    // 128 groups of 8 MiB.
    Image::made(&["-b", "1024", "-N", "32768"], "1G")
}

/// Returns the group of an inode.
fn group(fs: &Fs, inode: &InodeRef) -> u32 {
    let geometry = fs.superblock().geometry();
    geometry.inode_place(inode.ino()).unwrap().group.0
}

/// Runs `work` with each worker's number, on one thread for each worker. The threads all live at
/// the same time and take turns.
fn in_turn<T: Send>(
    workers: usize,
    rounds: usize,
    work: impl Fn(usize, usize) -> T + Sync,
) -> Vec<Vec<T>> {
    let (barrier, work) = (Barrier::new(workers), &work);
    let barrier = &barrier;
    std::thread::scope(|s| {
        let run = |me: usize| {
            move || {
                let mut all = Vec::new();
                for round in 0..rounds {
                    for turn in 0..workers {
                        if turn == me {
                            all.push(work(me, round));
                        }
                        barrier.wait();
                    }
                }
                all
            }
        };
        let threads: Vec<_> = (0..workers).map(|me| s.spawn(run(me))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns the number of groups that more than one worker used in the last four rounds.
fn shared(groups: &[Vec<u32>]) -> usize {
    let mut users: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for (me, mine) in groups.iter().enumerate() {
        for group in &mine[mine.len() - 4..] {
            users.entry(*group).or_default().insert(me);
        }
    }
    users.values().filter(|workers| workers.len() > 1).count()
}

fn create_in_turn(fs: &Fs, dirs: &[InodeRef]) -> usize {
    let groups = in_turn(WORKERS, 40, |me, round| {
        let name = format!("f{me}-{round}");
        group(fs, &fs.create(&dirs[me], name.as_bytes(), &file(0o644)).unwrap())
    });
    shared(&groups)
}

#[test]
fn workers_in_directories_that_one_thread_made_share_no_group() {
    let image = image();
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let top = fs.create(&fs.root().unwrap(), b"top", &directory()).unwrap();
    let make = |n: usize| fs.create(&top, format!("{n}").as_bytes(), &directory()).unwrap();
    let dirs: Vec<InodeRef> = (0..WORKERS).map(make).collect();
    assert_eq!(create_in_turn(fs, &dirs), 0);
    drop((dirs, top));
    mount.close().unwrap();
    image.check();
}

#[test]
fn as_many_workers_as_lanes_in_directories_that_they_made_share_no_group() {
    // A group has 8 MiB. The first image has eight groups for each worker. The second image has
    // only slightly more groups than workers.
    workers_share_no_group("4G", 3);
    workers_share_no_group("640M", 1);
}

/// Starts one worker for each lane. Each worker makes `each` directories in the root of an image
/// and works in them.
fn workers_share_no_group(size: &str, each: usize) {
    let image = Image::made(&["-b", "1024", "-N", "32768"], size);
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let make = |name: String| fs.create(&root, name.as_bytes(), &directory()).unwrap();
    let directories = in_turn(MANY, each, |me, n| group(fs, &make(format!("{me}-{n}"))));
    let all: BTreeSet<u32> = directories.iter().flatten().copied().collect();
    assert_eq!(all.len(), each * MANY, "a group each: {directories:?}");
    let groups = in_turn(MANY, 4, |me, n| {
        let dir = fs.find(&root, format!("{me}-0").as_bytes()).unwrap().unwrap();
        let new = fs.create(&dir, format!("f{n}").as_bytes(), &file(0o644)).unwrap();
        fs.write_at(&new, 0, &[7; 3000], Privilege::Ordinary).unwrap();
        group(fs, &new)
    });
    assert_eq!(shared(&groups), 0, "{groups:?}");
    drop(root);
    mount.close().unwrap();
    image.check();
}

/// Places all directories near their parent.
#[derive(Debug)]
struct Near;

impl Allocation for Near {
    fn spreads(&self) -> bool {
        false
    }
}

#[test]
fn workers_whose_directories_lie_in_one_group_move_apart() {
    let image = image();
    let options = MountOptions { allocation: Arc::new(Near), ..MountOptions::default() };
    let mount = image.mount_with(Access::ReadWrite, options);
    {
        let fs = mount.fs();
        let root = fs.root().unwrap();
        for n in 0..WORKERS {
            fs.create(&root, format!("{n}").as_bytes(), &directory()).unwrap();
        }
    }
    mount.close().unwrap();
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let find = |n: usize| fs.find(&root, format!("{n}").as_bytes()).unwrap().unwrap();
    let dirs: Vec<InodeRef> = (0..WORKERS).map(find).collect();
    assert!(dirs.iter().all(|dir| group(fs, dir) == 0));
    assert_eq!(create_in_turn(fs, &dirs), 0);
    drop((dirs, root));
    mount.close().unwrap();
    image.check();
}

#[test]
fn files_that_one_thread_made_and_many_empty_and_fill_again_share_no_group() {
    let image = image();
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let dir = fs.create(&fs.root().unwrap(), b"all", &directory()).unwrap();
    let make = |n: usize| fs.create(&dir, format!("{n}").as_bytes(), &file(0o644)).unwrap();
    let files: Vec<InodeRef> = (0..WORKERS).map(make).collect();
    in_turn(WORKERS, 40, |me, _| {
        let file = &files[me];
        fs.set_attr(file, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
        fs.fallocate(file, Fallocate::Allocate, 0, 8192, Privilege::Ordinary).unwrap();
    });
    drop((files, dir));
    mount.close().unwrap();
    image.check();
    let mut groups = BTreeSet::new();
    for n in 0..WORKERS {
        let said = image.debugfs(&[&format!("blocks /all/{n}")]);
        let first: u64 = said.split_whitespace().next().unwrap().parse().unwrap();
        groups.insert(first / 8192);
    }
    assert_eq!(groups.len(), WORKERS);
}

#[test]
fn a_tree_that_one_thread_unpacks_stays_together_and_other_trees_lie_elsewhere() {
    let image = image();
    let mount = image.mount(Access::ReadWrite);
    let fs = mount.fs();
    let root = fs.root().unwrap();
    let mut tops = Vec::new();
    for tree in 0..4 {
        let top = fs.create(&root, format!("{tree}").as_bytes(), &directory()).unwrap();
        let at = group(fs, &top);
        tops.push(at);
        for n in 0..4 {
            let dir = fs.create(&top, format!("{n}").as_bytes(), &directory()).unwrap();
            for m in 0..4 {
                let below = fs.create(&dir, format!("{m}").as_bytes(), &directory()).unwrap();
                let file = fs.create(&below, b"file", &file(0o644)).unwrap();
                fs.write_at(&file, 0, &[7; 3000], Privilege::Ordinary).unwrap();
                let place = group(fs, &below);
                assert!((place + 128 - at) % 128 <= 8, "{place} is near {at}");
                assert_eq!(group(fs, &file), place);
            }
        }
    }
    tops.sort_unstable();
    assert!(tops.windows(2).all(|two| two[1] - two[0] >= 16), "{tops:?}");
    drop(root);
    mount.close().unwrap();
    image.check();
}
