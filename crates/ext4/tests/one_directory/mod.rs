//! Scenarios in which several threads change names in one directory. Each change holds the
//! directory's lock in shared mode, unless it changes which blocks the directory has or which names
//! belong in each block.

use super::schedules::{EMPTY, INDEXED, STAYING, World, below, explore, long, may_fail, regular};
use super::{find, workers};
use lanefs_ext4::{DirEntry, InodeRef, NewInode, NewKind, Rename};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::ControlFlow;

thread_local! {
    /// For each name, the number of additions minus the number of removals in the present schedule.
    /// A thread-local value suffices, because the checker runs all threads of a schedule on one
    /// system thread, and each test has its own system thread.
    static COUNTS: RefCell<HashMap<String, i32>> = RefCell::default();
}

fn count(name: &str, by: i32) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(name.to_owned()).or_default() += by);
}

/// Checks that the directory has exactly the names that were added and not removed.
fn check_counts(world: &World, dir: &InodeRef) {
    // This check comes first, because the look-ups below would correct wrong cached entries.
    world.names.check(&world.fs);
    for (name, balance) in COUNTS.take() {
        let there = find(world, dir, &name).is_some();
        assert_eq!(balance, i32::from(there), "{name}: given, less how often it was taken");
    }
}

/// Adds, removes and moves a few names, and counts how often each is added and removed.
fn give_and_take(world: &World, name: fn(u32) -> String, few: u32) {
    let fs = &world.fs;
    let root = fs.root().unwrap();
    let dir = find(world, &root, "all").expect("nobody removes it");
    let (one, other) = (name(below(few)), name(below(few)));
    match below(10) {
        0..3 => {
            if may_fail(fs.create(&dir, one.as_bytes(), &regular())).is_some() {
                count(&one, 1);
            }
        }
        3..5 => {
            if may_fail(fs.unlink(&dir, one.as_bytes())).is_some() {
                count(&one, -1);
            }
        }
        5 => {
            if let Some(inode) = find(world, &dir, &one)
                && may_fail(fs.link(&inode, &dir, other.as_bytes())).is_some()
            {
                count(&other, 1);
            }
        }
        6 | 7 => {
            let (from, to) = (one.as_bytes(), other.as_bytes());
            if one != other
                && may_fail(fs.rename(&dir, from, &dir, to, Rename::NoReplace)).is_some()
            {
                count(&one, -1);
                count(&other, 1);
            }
        }
        8 => fs.sync().unwrap(),
        _ => drop(find(world, &dir, &one)),
    }
}

fn in_one_block(world: &World) {
    drop(world.directory(&world.fs.root().unwrap(), "all"));
    let step = |world: &World, _| give_and_take(world, |n| n.to_string(), 2);
    world.together(workers(3, 3, step));
    let root = world.fs.root().unwrap();
    check_counts(world, &find(world, &root, "all").expect("nobody removes it"));
}

#[test]
fn a_name_of_one_block_is_given_once_and_taken_once() {
    explore(&EMPTY, in_one_block);
}

fn in_leaves(world: &World) {
    let step = |world: &World, _| match below(4) {
        0 => see_those_that_stay(world),
        _ => give_and_take(world, |n| long(STAYING + n), 4),
    };
    world.together(workers(3, 3, step));
    let root = world.fs.root().unwrap();
    check_counts(world, &find(world, &root, "all").expect("nobody removes it"));
}

/// Reads the directory in pieces, and checks that each name that exists all the time is returned
/// exactly once.
fn see_those_that_stay(world: &World) {
    let root = world.fs.root().unwrap();
    let dir = find(world, &root, "all").expect("nobody removes it");
    let (mut seen, mut cookie) = (vec![0; STAYING as usize], 0);
    loop {
        let (mut left, before) = (1 + below(6), cookie);
        let read = world.fs.read_dir(&dir, cookie, &mut |entry| {
            let name = std::str::from_utf8(entry.name).unwrap();
            if let Some(n) = name.parse().ok().and_then(|n: usize| seen.get_mut(n)) {
                *n += 1;
            }
            (cookie, left) = (entry.next, left - 1);
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        read.unwrap();
        if cookie == before {
            break;
        }
    }
    assert!(seen.iter().all(|times| *times == 1), "how often each was told: {seen:?}");
}

#[test]
fn a_name_of_an_indexed_directory_is_given_once_and_taken_once() {
    explore(&INDEXED, in_leaves);
}

/// Creates, fills, empties and removes a directory that other threads use.
fn nest(world: &World, _: u8) {
    let fs = &world.fs;
    let root = fs.root().unwrap();
    let all = find(world, &root, "all").expect("nobody removes it");
    let name = ["0", "1"][below(2) as usize];
    match below(9) {
        0..3 => {
            let new = NewInode { kind: NewKind::Directory, ..regular() };
            drop(may_fail(fs.create(&all, name.as_bytes(), &new)));
        }
        3..5 => drop(may_fail(fs.rmdir(&all, name.as_bytes()))),
        5 | 6 => {
            if let Some(dir) = find(world, &all, name) {
                drop(may_fail(fs.create(&dir, b"x", &regular())));
            }
        }
        7 => {
            if let Some(dir) = find(world, &all, name) {
                may_fail(fs.unlink(&dir, b"x"));
            }
        }
        _ => fs.sync().unwrap(),
    }
}

fn nests(world: &World) {
    drop(world.directory(&world.fs.root().unwrap(), "all"));
    world.together(workers(3, 4, nest));
}

#[test]
fn directories_come_and_go_and_their_parent_counts_them() {
    explore(&EMPTY, nests);
}

/// Two threads create directories in `/all` while a third thread commits. In each commit, the link
/// count of `/all` must fit the number of directories in it.
fn counted(world: &World) {
    drop(world.directory(&world.fs.root().unwrap(), "all"));
    let makes = |world: &World, me: &str| {
        let all = find(world, &world.fs.root().unwrap(), "all").unwrap();
        NEW.iter().for_each(|name| drop(world.directory(&all, &format!("{me}{name}"))));
    };
    world.together(vec![
        Box::new(move |world| makes(world, "a")),
        Box::new(move |world| makes(world, "b")),
        Box::new(|world| (0..6).for_each(|_| world.fs.sync().unwrap())),
    ]);
}

#[test]
fn each_commit_has_as_many_links_as_directories() {
    explore(&EMPTY, counted);
}

/// One thread creates names that the name cache records as absent. As soon as the other thread sees
/// such a name in the directory, it must find the name in the name cache.
fn known_at_once(world: &World) {
    let root = world.fs.root().unwrap();
    let all = world.directory(&root, "all");
    NEW.iter().for_each(|name| assert!(find(world, &all, name).is_none()));
    drop((all, root));
    world.together(vec![
        Box::new(|world| {
            let all = find(world, &world.fs.root().unwrap(), "all").unwrap();
            NEW.iter().for_each(|name| drop(world.file(&all, name)));
        }),
        Box::new(|world| {
            let all = find(world, &world.fs.root().unwrap(), "all").unwrap();
            for _ in NEW {
                let mut seen = Vec::new();
                let see = &mut |entry: &DirEntry<'_>| {
                    seen.push(entry.name.to_vec());
                    ControlFlow::Continue(())
                };
                world.fs.read_dir(&all, 0, see).unwrap();
                for name in seen.iter().filter(|name| !name.starts_with(b".")) {
                    let known = world.names.of(all.dir_id(), name);
                    assert!(known.flatten().is_some(), "in the directory, known to be absent");
                }
            }
        }),
    ]);
}

const NEW: [&str; 6] = ["0", "1", "2", "3", "4", "5"];

#[test]
fn a_name_seen_in_a_directory_is_found_by_lookup() {
    explore(&EMPTY, known_at_once);
}

/// One thread creates names, and other threads look each name up once. At the end, the cached
/// entries must be right.
fn looked_for(world: &World) {
    drop(world.directory(&world.fs.root().unwrap(), "all"));
    let looks = |world: &World| {
        let all = find(world, &world.fs.root().unwrap(), "all").unwrap();
        for name in NEW {
            world.fs.lookup(&all, name.as_bytes()).unwrap();
        }
    };
    world.together(vec![
        Box::new(|world| {
            let all = find(world, &world.fs.root().unwrap(), "all").unwrap();
            NEW.iter().for_each(|name| drop(world.file(&all, name)));
        }),
        Box::new(looks),
        Box::new(looks),
    ]);
}

#[test]
fn a_look_up_during_a_change_caches_no_wrong_name() {
    explore(&EMPTY, looked_for);
}
