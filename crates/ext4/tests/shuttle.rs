//! Runs the whole file system under shuttle: a few threads contend, on a disk that may lose power.
//! Each schedule chooses whether caches may use memory, and whether searches wait for busy groups.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --profile stress -p lanefs-ext4 --test shuttle`
#![cfg(shuttle)]

mod one_directory;
mod schedules;

use lanefs_ext4::{
    Fallocate, InodeRef, NewInode, NewKind, Privilege, Rename, SetAttr, SetXattr, SyncMode,
};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::thread::{JoinHandle, spawn};
use lanefs_lanes::sync::unscheduled::Mutex;
use schedules::{EMPTY, FULL, LISTING, TIGHT, World, below, explore, may_fail, regular, words};
use std::ops::ControlFlow;

type Thread = Box<dyn FnOnce(&World) + Send>;

/// Returns `count` threads. Each thread runs `step` as many times as `steps` says.
fn workers(count: u8, steps: u32, step: fn(&World, u8)) -> Vec<Thread> {
    (1..=count)
        .map(|me| -> Thread { Box::new(move |world| (0..steps).for_each(|_| step(world, me))) })
        .collect()
}

fn find(world: &World, dir: &InodeRef, name: &str) -> Option<InodeRef> {
    may_fail(world.fs.find(dir, name.as_bytes())).flatten()
}

/// Returns one of the directories `/a` and `/b`.
fn some_directory(world: &World) -> Option<InodeRef> {
    let root = world.fs.root().unwrap();
    find(world, &root, ["a", "b"][below(2) as usize])
}

fn some_name() -> &'static [u8] {
    [&b"0"[..], b"1", b"2"][below(3) as usize]
}

/// Runs a random change of a name.
fn change_a_name(world: &World, me: u8) {
    let fs = &world.fs;
    let (Some(dir), Some(other)) = (some_directory(world), some_directory(world)) else { return };
    let (name, new) = (some_name(), some_name());
    match below(12) {
        0..2 => {
            if let Some(file) = may_fail(fs.create(&dir, name, &regular())) {
                may_fail(fs.write_at(&file, 0, &words::of(me, 0, 1536), Privilege::Root));
            }
        }
        2..4 => drop(may_fail(fs.unlink(&dir, name))),
        4 => {
            may_fail(fs.rename(&dir, name, &other, new, Rename::Replace));
        }
        5 => {
            may_fail(fs.rename(&dir, name, &other, new, Rename::Exchange));
        }
        6 => {
            if let Some(inode) = may_fail(fs.find(&dir, name)).flatten()
                && inode.file_type() == lanefs_ondisk::FileType::Regular
            {
                may_fail(fs.link(&inode, &other, new));
            }
        }
        7 => {
            let kind = NewKind::Directory;
            drop(may_fail(fs.create(&dir, name, &NewInode { kind, ..regular() })));
        }
        8 => drop(may_fail(fs.rmdir(&dir, name))),
        9 => {
            may_fail(fs.read_dir(&dir, 0, &mut |_| ControlFlow::Continue(())));
        }
        10 => fs.sync().unwrap(),
        _ => {
            if let Some(inode) = may_fail(fs.find(&dir, name)).flatten() {
                may_fail(fs.set_xattr(&inode, b"user.x", &[me; 40], SetXattr::Any));
                let mut contents = [0; 2048];
                if let Some(n) = may_fail(fs.read_at(&inode, 0, &mut contents)) {
                    words::check("a name", 0, &contents[..n]);
                }
            }
        }
    }
}

fn names(world: &World) {
    let root = world.fs.root().unwrap();
    let (a, _b) = (world.directory(&root, "a"), world.directory(&root, "b"));
    world.file(&a, "0");
    drop((a, _b, root));
    world.together(workers(3, 3, change_a_name));
}

#[test]
fn threads_change_the_same_names() {
    explore(&EMPTY, names);
}

/// Moves directories into each other, and creates and removes directories.
fn change_the_shape(world: &World, _me: u8) {
    let fs = &world.fs;
    let root = fs.root().unwrap();
    let all = ["a", "b", "c"];
    let anywhere = || -> InodeRef {
        let mut at = root.clone();
        for _ in 0..below(4) {
            if let Some(next) = find(world, &at, all[below(3) as usize]) {
                at = next;
            }
        }
        at
    };
    let (from, to) = (anywhere(), anywhere());
    let (name, new) = (all[below(3) as usize].as_bytes(), all[below(3) as usize].as_bytes());
    match below(8) {
        0..4 => {
            may_fail(fs.rename(&from, name, &to, new, Rename::Replace));
        }
        4..6 => {
            may_fail(fs.rename(&from, name, &to, new, Rename::Exchange));
        }
        6 => drop(may_fail(fs.rmdir(&from, name))),
        _ => {
            let kind = NewKind::Directory;
            drop(may_fail(fs.create(&from, name, &NewInode { kind, ..regular() })));
        }
    }
}

fn shapes(world: &World) {
    let root = world.fs.root().unwrap();
    let a = world.directory(&root, "a");
    world.directory(&root, "b");
    world.directory(&a, "c");
    drop((root, a));
    world.together(workers(3, 3, change_the_shape));
}

#[test]
fn directories_move_into_each_other_and_never_into_themselves() {
    explore(&EMPTY, shapes);
}

/// Reads, overwrites, appends, truncates, punches and allocates in two files.
fn change_data(world: &World, _me: u8) {
    let fs = &world.fs;
    let root = fs.root().unwrap();
    let id = 1 + below(2) as u8;
    let Some(file) = find(world, &root, ["x", "y"][usize::from(id - 1)]) else { return };
    let offset = u64::from(below(12)) * 512;
    let len = (1 + below(5)) as usize * 512;
    match below(12) {
        0..4 => {
            may_fail(fs.write_at(&file, offset, &words::of(id, offset, len), Privilege::Root));
        }
        4 => {
            may_fail(fs.write_at(&file, 8192, &words::of(id, 8192, len), Privilege::Root));
        }
        5..7 => {
            let size = Some(offset + u64::from(below(2)) * 8);
            may_fail(fs.set_attr(&file, &SetAttr { size, ..SetAttr::default() }));
        }
        7 => {
            let how = [Fallocate::PunchHole, Fallocate::ZeroRange, Fallocate::Allocate];
            let how = how[below(3) as usize];
            may_fail(fs.fallocate(&file, how, offset, len as u64, Privilege::Root));
        }
        8 => fs.fsync(&file, SyncMode::Full).unwrap(),
        9 => {
            may_fail(fs.unlink(&root, b"z"));
            if let Some(file) = may_fail(fs.create(&root, b"z", &regular())) {
                may_fail(fs.write_at(&file, 0, &words::of(3, 0, len), Privilege::Root));
            }
        }
        _ => {
            let mut contents = vec![0; len];
            let n = may_fail(fs.read_at(&file, offset, &mut contents)).unwrap_or(0);
            words::check("read", offset, &contents[..n]);
        }
    }
}

fn data(world: &World) {
    let root = world.fs.root().unwrap();
    for (id, name) in [(1, "x"), (2, "y")] {
        let file = world.file(&root, name);
        let len = 512 * (1 + below(9) as usize);
        world.fs.write_at(&file, 0, &words::of(id, 0, len), Privilege::Root).unwrap();
        if below(2) == 0 {
            world.fs.fsync(&file, SyncMode::Full).unwrap();
        }
    }
    drop(root);
    world.together(workers(3, 3, change_data));
}

#[test]
fn blocks_move_between_files_and_no_file_shows_foreign_data() {
    explore(&TIGHT, data);
}

/// One thread overwrites a file. The other thread truncates this file, and then fills another file
/// with all free blocks.
fn handed_over(world: &World) {
    let root = world.fs.root().unwrap();
    let file = world.file(&root, "x");
    world.fs.write_at(&file, 0, &words::of(1, 0, 4096), Privilege::Root).unwrap();
    drop((file, root));
    let overwrites: Thread = Box::new(|world| {
        let root = world.fs.root().unwrap();
        let file = find(world, &root, "x").expect("nobody removes it");
        for _ in 0..10 {
            let offset = u64::from(below(4)) * 1024;
            may_fail(world.fs.write_at(
                &file,
                offset,
                &words::of(1, offset, 1024),
                Privilege::Root,
            ));
        }
    });
    let takes: Thread = Box::new(|world| {
        let root = world.fs.root().unwrap();
        let file = find(world, &root, "x").expect("nobody removes it");
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        may_fail(world.fs.set_attr(&file, &set));
        let other = world.file(&root, "y");
        may_fail(world.fs.write_at(&other, 0, &words::of(2, 0, 30 << 10), Privilege::Root));
    });
    world.together(vec![overwrites, takes]);
}

#[test]
fn an_overwritten_block_belongs_to_one_file() {
    explore(&TIGHT, handed_over);
}

/// Creates the file `/x` with one extent of one to eight unwritten blocks. The threads of the
/// scenarios write to this extent and beyond it.
fn preallocated(world: &World) {
    let file = world.file(&world.fs.root().unwrap(), "x");
    let how = [Fallocate::Allocate, Fallocate::AllocateKeepSize][below(2) as usize];
    world.fs.fallocate(&file, how, 0, u64::from(1 + below(8)) * 1024, Privilege::Root).unwrap();
    if below(2) == 0 {
        world.fs.sync().unwrap();
    }
}

/// Writes a random range of `/x`, reads it back, and sometimes syncs the file. The range may have
/// unwritten blocks and holes, and may lie beyond the end of the file.
fn convert(world: &World, _me: u8) {
    let fs = &world.fs;
    let file = find(world, &fs.root().unwrap(), "x").expect("nobody removes it");
    // Some writes begin or end inside a block.
    let offset = u64::from(below(12)) * 512;
    let data = words::of(1, offset, (1 + below(6)) as usize * 512);
    let written = match below(2) {
        0 => fs.write_at(&file, offset, &data, Privilege::Root),
        _ => fs.write_back(&file, offset, &data, Privilege::Root),
    };
    assert_eq!(written.unwrap(), data.len());
    let mut found = vec![0; data.len()];
    assert_eq!(fs.read_at(&file, offset, &mut found).unwrap(), data.len());
    assert!(found == data, "{}", differences(&found, &data));
    if below(3) == 0 {
        fs.fsync(&file, if below(2) == 0 { SyncMode::Full } else { SyncMode::Data }).unwrap();
    }
}

fn converted(world: &World) {
    preallocated(world);
    world.together(workers(3, 2, convert));
}

#[test]
fn writes_that_share_an_unwritten_extent_are_all_kept() {
    explore(&EMPTY, converted);
}

/// Appends from two threads while a third thread writes beyond the end. No two appends may overlap.
fn appends(world: &World) {
    world.file(&world.fs.root().unwrap(), "x");
    let open = |world: &World| find(world, &world.fs.root().unwrap(), "x").expect("it stays");
    let places = Arc::new(Mutex::new(Vec::new()));
    let append = |places: Arc<Mutex<Vec<(u64, usize)>>>| -> Thread {
        Box::new(move |world| {
            for _ in 0..2 {
                // The data consists of zeros, because the bytes of `words::of` depend on the
                // offset, which is not known yet.
                let data = vec![0; 8 * (1 + below(200) as usize)];
                let place = world.fs.append(&open(world), &data, Privilege::Root).unwrap();
                assert_eq!(place.1, data.len());
                places.lock().unwrap().push(place);
            }
        })
    };
    let beyond: Thread = Box::new(move |world| {
        for _ in 0..2 {
            let file = open(world);
            let offset = file.attr().size.next_multiple_of(512) + u64::from(below(3)) * 512;
            let data = words::of(1, offset, 1024);
            world.fs.write_at(&file, offset, &data, Privilege::Root).unwrap();
        }
    });
    world.together(vec![append(places.clone()), append(places.clone()), beyond]);
    let mut places = places.lock().unwrap();
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(pair[0].0 + pair[0].1 as u64 <= pair[1].0, "{places:?}");
    }
}

#[test]
fn an_append_has_a_place_of_its_own_beside_writes_that_extend_the_file() {
    explore(&EMPTY, appends);
}

/// Writes all blocks of a preallocated file, as the other thread does too, and syncs the file.
fn convert_and_sync(world: &World, _me: u8) {
    let fs = &world.fs;
    let file = find(world, &fs.root().unwrap(), "x").expect("nobody removes it");
    let data = words::of(1, 0, 2048);
    assert_eq!(fs.write_at(&file, 0, &data, Privilege::Root).unwrap(), data.len());
    fs.fsync(&file, if below(2) == 0 { SyncMode::Full } else { SyncMode::Data }).unwrap();
    world.disk.promise("/x".into(), data);
    // The mapping must be durable, not only the data.
    if world.disk.cut().is_none() {
        world.disk.lose_power_at(0, 0);
    }
}

fn converted_and_synced(world: &World) {
    let file = world.file(&world.fs.root().unwrap(), "x");
    world.fs.fallocate(&file, Fallocate::Allocate, 0, 2048, Privilege::Root).unwrap();
    world.fs.sync().unwrap();
    drop(file);
    world.together(workers(2, 1, convert_and_sync));
}

#[test]
fn an_overwrite_that_is_synced_has_its_mapping_too() {
    explore(&EMPTY, converted_and_synced);
}

/// Pairs of names. All first names exist at the start. One thread adds the second names, each in a
/// separate transaction: it creates a new file, or links or renames the file with the first name.
const NAMES: [(&str, &str); 4] =
    [("old 0", "new 0"), ("old 1", "new 1"), ("old 2", "new 2"), ("old 3", "new 3")];

fn add_names(world: &World) {
    let fs = &world.fs;
    let dir = find(world, &fs.root().unwrap(), "d").expect("no thread removes it");
    for (old, new) in NAMES {
        match below(3) {
            0 => drop(world.file(&dir, new)),
            1 => {
                let inode = find(world, &dir, old).expect("no other thread renames it");
                fs.link(&inode, &dir, new.as_bytes()).unwrap();
            }
            _ => {
                let (from, to) = (old.as_bytes(), new.as_bytes());
                fs.rename(&dir, from, &dir, to, Rename::Replace).unwrap();
            }
        }
        fs.sync().unwrap();
    }
}

/// Finds the newest of the second names, and syncs either its directory or the file that it refers
/// to. At this time, the thread that adds the name may not have committed it yet.
fn sync_what_is_found(world: &World) {
    let fs = &world.fs;
    let dir = find(world, &fs.root().unwrap(), "d").expect("no thread removes it");
    let newest = || NAMES.iter().rev().find_map(|(_, new)| Some((new, find(world, &dir, new)?)));
    let Some((name, file)) = (0..20).find_map(|_| newest()) else { return };
    // fdatasync is not used for the file, because it does not promise that the name is durable.
    match below(3) {
        0 => fs.fsync(&file, SyncMode::Full).unwrap(),
        1 => fs.fsync(&dir, SyncMode::Full).unwrap(),
        _ => fs.fsync(&dir, SyncMode::Data).unwrap(),
    }
    world.disk.promise(format!("/d/{name}"), Vec::new());
    if world.disk.cut().is_none() {
        world.disk.lose_power_at(0, 0);
    }
}

fn found_and_synced(world: &World) {
    let dir = world.directory(&world.fs.root().unwrap(), "d");
    NAMES.iter().for_each(|(old, _)| drop(world.file(&dir, old)));
    world.fs.sync().unwrap();
    drop(dir);
    world.together(vec![Box::new(add_names), Box::new(sync_what_is_found)]);
}

#[test]
fn a_name_that_is_found_and_synced_is_durable() {
    explore(&EMPTY, found_and_synced);
}

/// Creates and changes files until the mount is read-only.
fn change_until_read_only(world: &World, me: u8) {
    /// EROFS.
    const READ_ONLY: i32 = 30;
    let fs = &world.fs;
    let root = fs.root().unwrap();
    let done = |result: Result<(), lanefs_ext4::Error>| match result {
        Err(error) if error.errno() == READ_ONLY => false,
        other => may_fail(other).is_some(),
    };
    for n in 0..3 {
        let name = format!("{me}.{n}");
        if !done(fs.create(&root, name.as_bytes(), &regular()).map(drop)) {
            return;
        }
        let Some(file) = find(world, &root, &name) else { continue };
        let data = words::of(me, 0, 512);
        if !done(fs.write_at(&file, 0, &data, Privilege::Root).map(drop)) {
            return;
        }
        if below(3) == 0 && done(fs.fsync(&file, SyncMode::Full)) {
            world.disk.promise(format!("/{name}"), data);
        }
    }
}

fn made_read_only(world: &World) {
    let remounts: Thread = Box::new(|world| world.mount.make_read_only().unwrap());
    let mut threads = workers(2, 1, change_until_read_only);
    threads.push(remounts);
    world.together(threads);
    let commits = || world.fs.statistics().journal.commits;
    let before = commits();
    world.fs.sync().unwrap();
    assert_eq!(commits(), before, "a change came after the mount was read-only");
    world.mount.make_writable().unwrap();
    drop(world.file(&world.fs.root().unwrap(), "later"));
}

#[test]
fn no_change_follows_the_switch_to_read_only() {
    explore(&EMPTY, made_read_only);
}

/// Runs a write into unwritten blocks, a truncation, a punch, an append, or a read of one file.
fn convert_beside_changes(world: &World, _me: u8) {
    let fs = &world.fs;
    let file = find(world, &fs.root().unwrap(), "x").expect("nobody removes it");
    let offset = u64::from(below(8)) * 512;
    let len = (1 + below(4)) as usize * 512;
    match below(9) {
        0..4 => {
            may_fail(fs.write_at(&file, offset, &words::of(1, offset, len), Privilege::Root));
        }
        4 => {
            let size = Some(offset + u64::from(below(2)) * 8);
            may_fail(fs.set_attr(&file, &SetAttr { size, ..SetAttr::default() }));
        }
        5 => {
            let how = [Fallocate::PunchHole, Fallocate::ZeroRange, Fallocate::AllocateKeepSize];
            let how = how[below(3) as usize];
            may_fail(fs.fallocate(&file, how, offset, len as u64, Privilege::Root));
        }
        6 => {
            // The test does not append bytes of `words::of`, because they depend on the offset,
            // which is known only after the append.
            let (at, n) = fs.append(&file, &[0; 8], Privilege::Root).unwrap();
            may_fail(fs.write_at(&file, at, &words::of(1, at, n), Privilege::Root));
        }
        _ => {
            let mut contents = vec![0; len];
            let n = may_fail(fs.read_at(&file, offset, &mut contents)).unwrap_or(0);
            words::check("read", offset, &contents[..n]);
        }
    }
}

fn converted_beside_changes(world: &World) {
    preallocated(world);
    world.together(workers(3, 3, convert_beside_changes));
}

#[test]
fn unwritten_blocks_are_written_while_others_truncate_and_punch() {
    explore(&TIGHT, converted_beside_changes);
}

/// Truncates and grows a file that only this thread uses. Other threads must not affect its
/// content.
fn own_file(world: &World, me: u8) {
    let fs = &world.fs;
    let root = fs.root().unwrap();
    let name = format!("own {me}");
    let mut file = world.file(&root, &name);
    let mut model = Vec::new();
    for _ in 0..5 {
        match below(7) {
            0..3 => {
                let offset = below(model.len() as u32 / 8 + 20) as usize * 8;
                let data = words::of(me, offset as u64, 8 * (1 + below(150) as usize));
                let end = offset + data.len();
                match may_fail(fs.write_at(&file, offset as u64, &data, Privilege::Root)) {
                    Some(n) => {
                        let end = offset + n;
                        model.resize(model.len().max(end), 0);
                        model[offset..end].copy_from_slice(&data[..n]);
                    }
                    // No data was written, but the bytes between the old end and the write may have
                    // been zeroed.
                    None => assert!(end > model.len() || fs.stat_fs().blocks_free < 40),
                }
            }
            3 | 4 => {
                let size = below(model.len() as u32 / 8 + 2) as usize * 8;
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                if may_fail(fs.set_attr(&file, &set)).is_some() {
                    model.resize(size, 0);
                }
            }
            5 => fs.sync().unwrap(),
            // Drops the hold on the file, so that the file can be evicted.
            _ => {
                drop(file);
                fs.sync().unwrap();
                file = find(world, &root, &name).expect("nobody else removes it");
            }
        }
        let mut found = vec![0; model.len() + 8];
        let n = fs.read_at(&file, 0, &mut found).unwrap();
        assert!(found[..n] == model, "{name}: {}", differences(&found[..n], &model));
    }
}

/// Changes a file and drops it, repeatedly. Meanwhile one thread reads the file, which may or may
/// not be in memory, and another thread creates and removes a file whose record is next to it in
/// the inode table.
fn looked_at(world: &World) {
    let root = world.fs.root().unwrap();
    let ino = world.file(&root, "x").ino();
    drop(root);
    let changes: Thread = Box::new(|world| {
        let root = world.fs.root().unwrap();
        for permissions in 1..5 {
            let file = find(world, &root, "x").expect("nobody removes it");
            let set = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
            world.fs.set_attr(&file, &set).unwrap();
            drop(file);
            if below(2) == 0 {
                world.fs.sync().unwrap();
            }
        }
    });
    let looks: Thread = Box::new(move |world| {
        let root = world.fs.root().unwrap();
        let mut last = 0;
        for _ in 0..6 {
            let Some(attr) = find(world, &root, "x").map(|file| file.attr()) else { continue };
            let seen = if attr.permissions == 0o755 { 0 } else { attr.permissions };
            assert!(attr.ino == ino && seen >= last, "{attr:?} was seen after {last}");
            last = seen;
        }
    });
    let neighbours: Thread = Box::new(|world| {
        let root = world.fs.root().unwrap();
        for _ in 0..3 {
            drop(may_fail(world.fs.create(&root, b"y", &regular())));
            may_fail(world.fs.unlink(&root, b"y"));
        }
    });
    world.together(vec![changes, looks, neighbours]);
}

#[test]
fn a_look_up_gives_nothing_older_than_an_earlier_one() {
    explore(&EMPTY, looked_at);
}

fn differences(found: &[u8], model: &[u8]) -> String {
    let at = found.iter().zip(model).position(|(a, b)| a != b);
    format!("{} bytes, should be {}; first difference at {at:?}", found.len(), model.len())
}

fn own_files(world: &World) {
    world.together(workers(3, 1, own_file));
}

#[test]
fn a_file_that_is_truncated_and_grows_keeps_its_data() {
    explore(&TIGHT, own_files);
}

#[test]
fn overwrites_during_truncation_show_no_foreign_data() {
    explore(&EMPTY, data);
}

/// Opens, unlinks, links and creates files, so that inode numbers are freed and reused.
fn use_the_nameless(world: &World, me: u8) {
    let fs = &world.fs;
    let root = fs.root().unwrap();
    let (name, new) = (some_name(), some_name());
    match below(8) {
        0 => drop(may_fail(fs.unlink(&root, name))),
        1 => {
            if let Some(file) = may_fail(fs.find(&root, name)).flatten() {
                fs.hold(&file, 2);
                let ino = file.ino();
                may_fail(fs.unlink(&root, name));
                may_fail(fs.write_at(&file, 0, &words::of(me, 0, 512), Privilege::Root));
                assert!(fs.get(ino, Some(file.generation())).is_ok(), "a held file is there");
                drop(file);
                fs.forget(ino, 2);
            }
        }
        2 => {
            if let Some(file) = may_fail(fs.find(&root, name)).flatten() {
                fs.hold(&file, 2);
                let (ino, generation) = (file.ino(), Some(file.generation()));
                drop(file);
                // Other threads may evict the inode, load it, and remove its name.
                fs.forget(ino, 1);
                assert!(fs.get(ino, generation).is_ok(), "a known file is there");
                fs.forget(ino, 1);
            }
        }
        3 => {
            if let Some(file) = may_fail(fs.find(&root, name)).flatten() {
                may_fail(fs.link(&file, &root, new));
            }
        }
        4 => {
            if let Some(file) = may_fail(fs.create_unnamed(&root, &regular())) {
                may_fail(fs.append(&file, &words::of(me, 0, 512), Privilege::Root));
                if below(2) == 0 {
                    may_fail(fs.link(&file, &root, new));
                }
            }
        }
        5 => fs.sync().unwrap(),
        _ => {
            if let Some(file) = may_fail(fs.create(&root, name, &regular())) {
                // This writes at offset 0 and does not append, because another thread may have
                // found the name first and may already have written.
                may_fail(fs.write_at(&file, 0, &words::of(me, 0, 512), Privilege::Root));
            }
        }
    }
}

fn nameless(world: &World) {
    let root = world.fs.root().unwrap();
    world.file(&root, "0");
    world.file(&root, "1");
    drop(root);
    world.together(workers(3, 3, use_the_nameless));
}

#[test]
fn unnamed_files_live_as_long_as_their_references() {
    explore(&EMPTY, nameless);
}

#[test]
fn unnamed_files_live_as_long_as_their_references_with_the_orphan_list() {
    explore(&LISTING, nameless);
}

/// Writes and syncs a file, and records its contents as a promise.
fn promise(world: &World, me: u8) {
    let fs = &world.fs;
    let root = fs.root().unwrap();
    let n = below(100_000);
    let name = format!("{me}.{n}");
    let Some(file) = may_fail(fs.create(&root, name.as_bytes(), &regular())) else { return };
    let len = 512 * (1 + below(6) as usize);
    let contents = words::of(me, 0, len);
    let mut path = format!("/{name}");
    if below(3) == 0 {
        // Here the blocks are written and synced first, so that the second write changes only their
        // data.
        fs.write_at(&file, 0, &vec![0; len], Privilege::Root).unwrap();
        fs.fsync(&file, SyncMode::Full).unwrap();
    }
    fs.write_at(&file, 0, &contents, Privilege::Root).unwrap();
    if below(2) == 0 {
        path += "new";
        fs.rename(&root, name.as_bytes(), &root, path[1..].as_bytes(), Rename::Replace).unwrap();
        match below(2) {
            0 => fs.sync().unwrap(),
            _ => fs.fsync(&file, SyncMode::Full).unwrap(),
        }
    } else {
        fs.fsync(&file, SyncMode::Data).unwrap();
    }
    world.disk.promise(path, contents);
}

fn promises(world: &World) {
    world.together(workers(3, 2, promise));
}

#[test]
fn synced_changes_survive_a_power_cut() {
    explore(&EMPTY, promises);
}

/// Truncates a file in the middle of a block, and appends to it while another thread commits the
/// truncation. Syncs the file at the end. Each step looks the file up again.
fn cut_and_append(world: &World) {
    let fs = &world.fs;
    let open = || find(world, &fs.root().unwrap(), "x").expect("no thread removes it");
    fs.write_at(&open(), 0, &words::of(1, 0, 1024), Privilege::Root).unwrap();
    let mut len = 1024;
    for _ in 0..2 {
        len = 8 * below(len as u32 / 8) as usize;
        let set = SetAttr { size: Some(len as u64), ..SetAttr::default() };
        fs.set_attr(&open(), &set).unwrap();
        let commit = commit_meanwhile(world);
        look_at_others(world);
        let more = words::of(1, len as u64, 8 * (1 + below(60) as usize));
        fs.append(&open(), &more, Privilege::Root).unwrap();
        len += more.len();
        commit.join().unwrap();
    }
    let commit = commit_meanwhile(world);
    look_at_others(world);
    fs.fsync(&open(), if below(2) == 0 { SyncMode::Full } else { SyncMode::Data }).unwrap();
    let model = words::of(1, 0, len);
    world.disk.promise("/x".into(), model.clone());
    commit.join().unwrap();
    let mut found = vec![0; len + 8];
    let n = fs.read_at(&open(), 0, &mut found).unwrap();
    assert!(found[..n] == model, "{}", differences(&found[..n], &model));
}

fn commit_meanwhile(world: &World) -> JoinHandle<()> {
    let fs = world.fs.clone();
    spawn(move || fs.sync().unwrap())
}

/// Loads other files, so that objects that may be evicted are in fact evicted.
fn look_at_others(world: &World) {
    let root = world.fs.root().unwrap();
    for name in ["0", "1"] {
        assert!(find(world, &root, name).is_some());
    }
}

fn evicted_while_owed(world: &World) {
    let root = world.fs.root().unwrap();
    for name in ["x", "0", "1"] {
        world.file(&root, name);
    }
    drop(root);
    cut_and_append(world);
}

#[test]
fn an_inode_with_pending_work_of_a_commit_stays() {
    explore(&EMPTY, evicted_while_owed);
}

/// Takes and frees the last blocks.
fn fight_for_space(world: &World, me: u8) {
    let fs = &world.fs;
    let root = fs.root().unwrap();
    let name = [me];
    let by = if below(3) == 0 { Privilege::Root } else { Privilege::Ordinary };
    let file = match may_fail(fs.find(&root, &name)).flatten() {
        Some(file) => file,
        None => match may_fail(fs.create(&root, &name, &regular())) {
            Some(file) => file,
            None => return,
        },
    };
    let size = file.attr().size;
    match below(6) {
        0..3 => {
            may_fail(fs.write_at(&file, size, &words::of(me, size, 4096), by));
        }
        3 => {
            may_fail(fs.fallocate(&file, Fallocate::Allocate, size, 4096, by));
        }
        4 => {
            let size = Some(size / 2 / 8 * 8);
            may_fail(fs.set_attr(&file, &SetAttr { size, ..SetAttr::default() }));
        }
        _ => drop(may_fail(fs.unlink(&root, &name))),
    }
}

fn full(world: &World) {
    world.together(workers(3, 3, fight_for_space));
}

#[test]
fn each_of_the_last_blocks_goes_to_one_file() {
    explore(&FULL, full);
}
