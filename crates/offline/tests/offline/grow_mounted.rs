//! Tests of a file system that grows while it is in use. The result is compared with a file system
//! that resize2fs made larger. In other tests, threads write while it grows, it is filled to the
//! last block, the power is cut at writes, and free blocks are discarded.

use lanefs_device::{Device, Event, Kept, OverlayDevice, RamDevice, Recording, RecordingDevice};
use lanefs_ext4::{
    Error, Fs, InodeRef, InvalidArgument, Mount, MountOptions, NewInode, NewKind, Primary,
    Privilege, SyncMode,
};
use lanefs_offline::recover;
use lanefs_suites::cuts::{dumpe2fs, filled, read_as_it_is, same, seen};
use lanefs_suites::image::{Image as Disk, Scratch};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::Arc;

/// For each case: options for mke2fs, the block size in bytes, and the size in megabytes before and
/// after the growth.
const GROWN: [(&str, u64, u64, u64); 9] = [
    ("-b 1024 -J size=1 -N 2000", 1024, 14, 30),
    ("-b 1024 -J size=1 -N 2000", 1024, 14, 15),
    ("-b 1024 -J size=4 -N 2000", 1024, 14, 150),
    ("-b 1024 -J size=4 -g 1024 -N 2000", 1024, 14, 77),
    ("-b 4096 -J size=4", 4096, 40, 700),
    ("-b 1024 -J size=4 -O ^flex_bg -N 2000", 1024, 14, 60),
    ("-b 1024 -J size=4 -O ^metadata_csum,^metadata_csum_seed,^64bit -I 128", 1024, 14, 60),
    ("-b 1024 -J size=1 -g 512 -O meta_bg,^resize_inode -N 2000", 1024, 14, 60),
    ("-t ext3 -b 1024 -J size=4 -N 2000", 1024, 14, 60),
];

fn create(fs: &Fs, dir: &InodeRef, name: &str, kind: NewKind<'static>) -> Result<InodeRef, Error> {
    let new = NewInode { kind, permissions: 0o755, umask: 0, uid: 0, gid: 0 };
    fs.create(dir, name.as_bytes(), &new)
}

fn new_file(fs: &Fs, name: &str) -> InodeRef {
    create(fs, &fs.root().expect("the root"), name, NewKind::Regular).expect("a file")
}

fn new_directory(fs: &Fs, name: &str) -> InodeRef {
    create(fs, &fs.root().expect("the root"), name, NewKind::Directory).expect("a directory")
}

#[test]
fn a_file_system_that_grew_in_use_is_what_resize2fs_makes() {
    for (options, block_size, before, after) in GROWN {
        let Some(image) = filled(options, &format!("{before}M"), 2) else { return };
        let context = format!("{options} from {before} to {after}");
        let listing = seen(image.device());
        let copy = Disk::empty();
        std::fs::copy(image.path(), copy.path()).expect("a copy");
        let resized =
            Command::new("resize2fs").arg("-f").arg(copy.path()).arg(format!("{after}M")).output();
        let resized = resized.expect("resize2fs");
        assert!(resized.status.success(), "{}", String::from_utf8_lossy(&resized.stderr));
        let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
        let blocks = mount.fs().grow((after << 20) / block_size);
        let blocks = blocks.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(blocks > ((after - 9) << 20) / block_size, "{context}: {blocks}");
        mount.close().expect("an unmount");
        image.assert_clean(&context);
        same(&listing, &seen(image.device()), &context);
        let (ours, theirs) = (dumpe2fs(&image), dumpe2fs(&copy));
        for name in [
            "Block count",
            "Inode count",
            "Reserved block count",
            "Reserved GDT blocks",
            "Filesystem features",
            "Free inodes",
            "Free blocks",
        ] {
            assert_eq!(ours.get(name), theirs.get(name), "{context}: {name}");
        }
        let Some(mount) = image.kernel_mount("") else { continue };
        std::fs::write(mount.path().join("by-the-kernel"), vec![7; 1 << 20]).expect("a file");
        mount.unmount();
        image.assert_clean(&format!("{context}, used by the kernel"));
    }
}

/// Without a resize inode, no block is reserved for further descriptors. So the descriptors of the
/// new groups lie in the new groups, and the old descriptors and their copies keep their places.
#[test]
fn without_reserved_blocks_a_file_system_in_use_grows_beside_its_old_descriptors() {
    for features in ["^resize_inode", "^resize_inode,^flex_bg"] {
        let options = format!("-b 1024 -J size=1 -g 256 -N 600 -O {features}");
        let Some(image) = filled(&options, "14M", 2) else { return };
        let listing = seen(image.device());
        for megabytes in [15, 21, 40] {
            let context = format!("{options}: {megabytes} MiB");
            let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
            let blocks = mount.fs().grow(megabytes << 10).expect("a larger file system");
            assert_eq!(blocks, megabytes << 10, "{context}");
            mount.close().expect("an unmount");
            image.assert_clean(&context);
            same(&listing, &seen(image.device()), &context);
        }
    }
}

#[test]
fn writers_that_met_the_end_go_on_in_the_new_blocks() {
    let options = "-b 1024 -J size=1 -g 1024 -N 4000 -E resize=120000";
    let Some(image) = filled(options, "14M", 1) else { return };
    let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
    let fs = mount.fs();
    let fill = |me: usize| {
        let file = new_file(fs, &format!("fill-{me}"));
        let (mut at, data) = (0u64, [me as u8; 20_000]);
        loop {
            match fs.write_at(&file, at, &data, Privilege::Ordinary) {
                Ok(written) if written > 0 => at += written as u64,
                Ok(_) | Err(Error::NoSpace) => return at,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let full: u64 = (0..3).map(fill).sum();
    assert!(full > 5 << 20 && full < 13 << 20, "{full}");
    // The file system grows several times, while threads write files and make directories.
    let written = std::thread::scope(|s| {
        let writers: Vec<_> = (3..6)
            .map(|me| {
                s.spawn(move || {
                    for n in 0..60 {
                        let name = format!("d-{me}-{n}");
                        let root = fs.root().expect("the root");
                        match create(fs, &root, &name, NewKind::Directory) {
                            Ok(_) | Err(Error::NoSpace) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    fill(me + 10)
                })
            })
            .collect();
        for megabytes in [15, 16, 24, 40, 41] {
            fs.grow(megabytes << 10).expect("a larger file system");
        }
        writers.into_iter().map(|writer| writer.join().expect("no panic")).sum::<u64>()
    });
    let rest: u64 = (20..22).map(fill).sum();
    assert!(written + rest > 20 << 20, "{written} and {rest}");
    mount.close().expect("an unmount");
    image.assert_clean("full again");
}

#[test]
fn a_directory_that_is_read_gets_names_of_inodes_in_new_groups() {
    let options = "-b 1024 -J size=1 -g 1024 -N 700 -E resize=120000";
    let Some(image) = filled(options, "14M", 1) else { return };
    let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
    let fs = mount.fs();
    let (dir, other) = (new_directory(fs, "dir"), new_directory(fs, "other"));
    let create = |dir: &InodeRef, n: usize| create(fs, dir, &n.to_string(), NewKind::Regular);
    // Each leaf of the directory keeps room. So a thread can add names without the exclusive lock,
    // for which it would have to wait until the listing below ends.
    let linked = new_file(fs, "linked");
    let names = || (0..400).map(|n| format!("a-name-that-takes-some-room-{n}"));
    names().for_each(|name| fs.link(&linked, &dir, name.as_bytes()).expect("a name"));
    names().step_by(2).for_each(|name| fs.unlink(&dir, name.as_bytes()).expect("removed"));
    // All inodes are in use, so files that are created after the growth get inodes of new groups.
    assert!((0..).take_while(|n| create(&other, *n).is_ok()).count() > 100);
    let before = fs.stat_fs().inodes;
    let (mut seen, mut added) = (0, 0);
    fs.read_dir(&dir, 0, &mut |entry| {
        // The first block of names has been read. The others are read after the growth.
        if seen == 3 {
            std::thread::scope(|s| {
                let grow = || {
                    fs.grow(40 << 10).expect("a larger file system");
                    let inode = |n| u64::from(create(&dir, n).expect("a file").ino().0);
                    (0..40).map(inode).filter(|ino| *ino > before).count()
                };
                added = s.spawn(grow).join().expect("no panic");
            });
        }
        seen += usize::from(!entry.name.is_empty());
        ControlFlow::Continue(())
    })
    .expect("a complete listing");
    assert!(added > 10, "{added} names of inodes in new groups");
    drop((dir, other, linked));
    mount.close().expect("an unmount");
    image.assert_clean("grown while a directory was read");
}

#[test]
fn trimming_a_file_system_in_use_discards_all_free_blocks_and_nothing_else() {
    let Some(image) = filled("-b 4096 -J size=4", "300M", 8) else { return };
    let listing = seen(image.device());
    let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
    let fs = mount.fs();
    let free = fs.stat_fs().blocks_free * 4096;
    assert_eq!(fs.trim(0..u64::MAX, 0).expect("discarded"), free);
    // Only runs of at least 100 MiB are discarded.
    let long = fs.trim(0..u64::MAX, 100 << 20).expect("discarded");
    assert!(long >= 100 << 20 && long <= free, "{long} of {free}");
    assert_eq!(fs.trim(0..4096, 0).expect("nothing"), 0);
    assert_eq!(fs.stat_fs().blocks_free * 4096, free);
    mount.close().expect("an unmount");
    image.assert_clean("trimmed");
    same(&listing, &seen(image.device()), "trimmed");
}

#[test]
fn a_file_system_that_cannot_grow_names_the_reason() {
    let Some(image) = filled("-b 1024 -O ^has_journal", "14M", 1) else { return };
    let mount = Mount::open(image.device(), MountOptions::default()).expect("a mount");
    let why = mount.fs().grow(20 << 10).expect_err("a refusal").to_string();
    assert_eq!(
        why,
        "the file system cannot grow: without a journal it must not be mounted for that"
    );
    drop(mount);
    let Some(image) = filled("-b 1024 -J size=1", "14M", 1) else { return };
    let device: Arc<dyn Device> = Arc::new(RamDevice::copy_of(&image.device()).expect("memory"));
    let mount = Mount::open(device, MountOptions::default()).expect("a mount");
    assert_eq!(mount.fs().grow(14 << 10).expect("no change"), 14 << 10);
    let smaller = mount.fs().grow(10 << 10).expect_err("a refusal");
    assert!(matches!(smaller, Error::InvalidArgument(InvalidArgument::Smaller)), "{smaller}");
    let why = mount.fs().grow(20 << 10).expect_err("a refusal").to_string();
    let start = "the file system cannot grow: it needs 20971520 bytes, and the device has 14680064";
    assert!(why.starts_with(start), "{why}");
}

/// Grows twice, and uses the new groups after each growth.
fn grow_and_write(device: Arc<dyn Device>, megabytes: [u64; 2]) {
    let mount = Mount::open(device, MountOptions::default()).expect("a mount");
    let fs = mount.fs();
    for (turn, megabytes) in megabytes.into_iter().enumerate() {
        fs.grow(megabytes << 10).expect("a larger file system");
        for n in 0..12 {
            let dir = new_directory(fs, &format!("dir-{turn}-{n}"));
            let new =
                NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 };
            let file = fs.create(&dir, b"file", &new).expect("a file");
            fs.write_at(&file, 0, &[n; 30_000], Privilege::Root).expect("data");
            if n % 4 == 0 {
                fs.fsync(&file, SyncMode::Full).expect("durable");
            }
        }
    }
    mount.close().expect("an unmount");
}

/// Records a file system that grows twice, and simulates power cuts at every `step`-th write.
fn cut(options: &str, [before, between, after]: [u64; 3], step: usize) {
    let Some(image) = filled(options, &format!("{before}M"), 1) else { return };
    let file = std::fs::File::options().write(true).open(image.path()).expect("the image");
    file.set_len(after << 20).expect("a longer file");
    let inner: Arc<dyn Device> = Arc::new(RamDevice::copy_of(&image.device()).expect("memory"));
    let device = Arc::new(RecordingDevice::new(inner).expect("a recording"));
    grow_and_write(device.clone(), [between, after]);
    let recording = device.recording();
    let scratch = Scratch::new(recording.base()).expect("a scratch file");
    let mut replay = recording.replay();
    let (mut sizes, mut states) = (BTreeSet::new(), 0);
    let events = recording.events().len();
    for cut in (0..=events).step_by(step) {
        let seed = cut as u64;
        for kept in [Kept::All, Kept::None, Kept::Some { seed }, Kept::Torn { seed }] {
            let state = Arc::new(replay.state(cut, kept));
            let context = format!("{options}: cut {cut} of {events}, {kept:?}");
            read_as_it_is(&state).unwrap_or_else(|why| panic!("{context}: {why}"));
            recover(&(state.clone() as Arc<dyn Device>))
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            let disk = scratch.put(&state).expect("a scratch file");
            disk.assert_clean(&context);
            sizes.insert(dumpe2fs(disk)["Block count"].clone());
            states += 1;
        }
    }
    println!("{options}: {events} writes, {states} states, sizes {sizes:?}");
    assert_eq!(sizes.len(), 3, "{options}: before, between and after: {sizes:?}");
}

/// Mounts a recorded image in memory. The image has the durable file `before`, which has 30,000
/// bytes. The file system has `from` MiB, and its device has `to` MiB.
fn recorded([from, to]: [u64; 2]) -> Option<(Arc<RecordingDevice>, Mount)> {
    let options = "-b 1024 -J size=1 -g 1024 -N 2000 -E resize=120000";
    let image = filled(options, &format!("{from}M"), 1)?;
    let file = std::fs::File::options().write(true).open(image.path()).expect("the image");
    file.set_len(to << 20).expect("a longer file");
    let inner: Arc<dyn Device> = Arc::new(RamDevice::copy_of(&image.device()).expect("memory"));
    let device = Arc::new(RecordingDevice::new(inner).expect("a recording"));
    let mount = Mount::open(device.clone(), MountOptions::default()).expect("a mount");
    let fs = mount.fs();
    let before = new_file(fs, "before");
    fs.write_at(&before, 0, &[5; 30_000], Privilege::Root).expect("data");
    fs.fsync(&before, SyncMode::Full).expect("durable");
    drop(before);
    Some((device, mount))
}

/// Files that were durable before the growth are unchanged. The new size is durable when the growth
/// returns. Files in the new groups are durable after their commit, although the log then contains
/// blocks beyond the old end.
#[test]
fn a_power_cut_around_the_commit_of_a_growth_leaves_the_old_size_or_the_new_one() {
    let Some((device, mount)) = recorded([14, 20]) else { return };
    let fs = mount.fs();
    new_file(fs, "in the transaction of the growth");
    let begun = device.mark();
    fs.grow(20 << 10).expect("a larger file system");
    let grown = device.mark();
    for n in 0..20 {
        new_directory(fs, &format!("dir-{n}"));
    }
    let after = new_file(fs, "after");
    fs.write_at(&after, 0, &[6; 2 << 20], Privilege::Root).expect("data");
    fs.fsync(&after, SyncMode::Full).expect("durable");
    let used = device.mark();
    let recording = device.recording();
    drop(after);
    drop(mount);
    // Nothing refers to the new groups before the first flush, so the power cuts begin there.
    let flush = |cut: &usize| matches!(recording.events()[*cut], Event::Flush { .. });
    let first = (begun..grown).find(flush).expect("a flush");
    let scratch = Scratch::new(recording.base()).expect("a scratch file");
    let mut replay = recording.replay();
    let mut sizes = BTreeSet::new();
    for cut in (first..=grown).chain([used]) {
        let seed = cut as u64;
        let torn = (0..3).map(|n| Kept::Torn { seed: seed + 1000 * n });
        for kept in [Kept::All, Kept::None, Kept::Some { seed }].into_iter().chain(torn) {
            let state = Arc::new(replay.state(cut, kept));
            let context = format!("cut {cut} of {first} to {grown}, {kept:?}");
            recover(&(state.clone() as Arc<dyn Device>))
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            let disk = scratch.put(&state).expect("a scratch file");
            disk.assert_clean(&context);
            let blocks = dumpe2fs(disk)["Block count"].clone();
            let files = seen(state);
            let len = |name: &[u8]| files.entries.get(name).and_then(|file| file.size);
            assert_eq!(len(b"before"), Some(30_000), "{context}");
            assert!(cut < grown || blocks == "20480", "{context}: {blocks} blocks");
            assert!(cut < used || len(b"after") == Some(2 << 20), "{context}");
            sizes.insert(blocks);
        }
    }
    assert_eq!(sizes.len(), 2, "before and after: {sizes:?}");
}

/// Checks that a read-only mount and `lanefs check` read `state`. Then checks that e2fsck and the
/// kernel open it by its primary superblock, not by a backup, and that they either complete or
/// ignore the growth recorded in its log.
fn check_with_others(scratch: &Scratch, state: &OverlayDevice, context: &str) {
    read_as_it_is(state).unwrap_or_else(|why| panic!("{context}: {why}"));
    let disk = scratch.put(state).expect("a scratch file");
    let verdict = disk.repair();
    assert!(verdict.only_replayed(), "{context}: e2fsck -fy says {}", verdict.text);
    assert!(!verdict.text.contains("backup"), "{context}: e2fsck -fy says {}", verdict.text);
    disk.assert_clean(&format!("{context}, after e2fsck"));
    let disk = scratch.put(state).expect("a scratch file");
    let Some(mount) = disk.kernel_mount("") else { return };
    let before = std::fs::read(mount.path().join("before"));
    assert!(before.is_ok_and(|before| before == [5; 30_000]), "{context}: the file of before");
    mount.unmount();
    disk.assert_clean(&format!("{context}, after the kernel"));
}

/// The new superblock counts groups whose descriptors e2fsck and the kernel check before they
/// replay the log. So the descriptors must be in place before the superblock, both in a checkpoint
/// and in a replay of the log.
#[test]
fn e2fsck_and_the_kernel_read_a_growth_that_a_power_cut_interrupted_in_place() {
    // The descriptors of the new groups are in the fourth block of descriptors, which is not
    // adjacent to other blocks of the transaction.
    let Some((device, mount)) = recorded([48, 56]) else { return };
    let fs = mount.fs();
    let begun = device.mark();
    fs.grow(56 << 10).expect("a larger file system");
    mount.close().expect("an unmount");
    let recording = device.recording();
    let scratch = Scratch::new(recording.base()).expect("a scratch file");
    let mut replay = recording.replay();
    let (mut states, mut in_log) = (0, None);
    for cut in begun..=recording.events().len() {
        for kept in ways(&recording, cut) {
            let state = replay.state(cut, kept);
            let context = format!("cut {cut} of {begun} to {}, {kept:?}", recording.events().len());
            check_with_others(&scratch, &state, &context);
            states += 1;
            if in_log.is_none() && blocks_of(&state) == 48 << 10 {
                let recovered = Arc::new(state.fork());
                recover(&(recovered.clone() as Arc<dyn Device>)).expect("a recovery");
                in_log = (blocks_of(&recovered) == 56 << 10).then_some(state);
            }
        }
    }
    // `in_log` is the first state in which the whole growth is in the log, but the superblock in
    // place still has the old size.
    let base: Arc<dyn Device> = Arc::new(in_log.expect("a state"));
    let device = Arc::new(RecordingDevice::new(base).expect("a recording"));
    recover(&(device.clone() as Arc<dyn Device>)).expect("a recovery");
    let recording = device.recording();
    let scratch = Scratch::new(recording.base()).expect("a scratch file");
    let mut replay = recording.replay();
    let (mut states_of_recovery, mut sizes) = (0, BTreeSet::new());
    for cut in 0..=recording.events().len() {
        for kept in ways(&recording, cut) {
            let state = replay.state(cut, kept);
            check_with_others(&scratch, &state, &format!("cut {cut} of the recovery, {kept:?}"));
            states_of_recovery += 1;
            sizes.insert(blocks_of(&state));
        }
    }
    assert_eq!(sizes.len(), 2, "before and after: {sizes:?}");
    println!("{states} states, {states_of_recovery} of a recovery");
}

/// Returns, for each state that is tested at a cut, which unflushed writes the state keeps.
/// Directly after a flush there are no unflushed writes. Otherwise one state keeps all of them, and
/// another keeps some of them.
fn ways(recording: &Recording, cut: usize) -> Vec<Kept> {
    match cut.checked_sub(1).map(|last| &recording.events()[last]) {
        None | Some(Event::Flush { .. }) => vec![Kept::None],
        Some(_) => vec![Kept::All, Kept::Some { seed: cut as u64 }],
    }
}

/// Returns the block count in the primary superblock. A newer superblock in the log is ignored.
fn blocks_of(state: &OverlayDevice) -> u64 {
    Primary::read(state).expect("a superblock").superblock.geometry().block_count()
}

#[test]
fn growing_in_use_can_be_cut_at_any_write() {
    cut("-b 1024 -J size=1 -g 1024 -N 2000 -E resize=120000", [14, 20, 40], 9);
}

#[test]
#[ignore = "long: 5,000 states"]
fn growing_in_use_can_be_cut_at_any_write_with_other_layouts() {
    cut("-b 1024 -J size=1 -g 1024 -N 2000 -E resize=120000", [14, 20, 40], 1);
    cut("-b 1024 -J size=4 -N 2000", [14, 15, 40], 1);
    cut("-b 1024 -J size=1 -g 512 -O meta_bg,^resize_inode -N 2000", [14, 20, 40], 1);
    cut("-b 1024 -J size=1 -g 512 -O ^resize_inode,^flex_bg -N 2000", [14, 20, 40], 1);
    cut("-b 1024 -J size=4 -g 1024 -O ^metadata_csum,^metadata_csum_seed -N 2000", [14, 20, 40], 1);
}
