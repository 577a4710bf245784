//! Fast commits that Lanefs writes. Lanefs, e2fsck and the kernel replay them from crash states.

use lanefs_device::{Device, Event, GatedDevice, Kept, OverlayDevice, Pace, RecordingDevice};
use lanefs_ext4::{
    FastCommitting, Fs, InodeRef, Mount, MountOptions, NewInode, NewKind, Primary, Privilege,
    SyncMode, log,
};
use lanefs_lanes::sync::unscheduled::Barrier;
use lanefs_offline::recover;
use lanefs_ondisk::Ino;
use lanefs_suites::fast_commits::{OPTIONS, check};
use lanefs_suites::image::Scratch;
use lanefs_suites::planted::{Bug, Planted};
use lanefs_suites::random::seeds;
use lanefs_suites::together::Bases;
use std::sync::Arc;
use std::time::Duration;

fn plain(device: Arc<dyn Device>) -> Arc<dyn Device> {
    device
}

#[test]
fn every_program_keeps_the_promises_of_fsync() {
    for seed in seeds(4) {
        let found = check(seed, 120, 40, &plain).unwrap_or_else(|why| panic!("{why}"));
        println!("seed {seed}: {found}; {:?}", found.refused);
    }
}

#[test]
#[ignore = "long: 2,000 crash states"]
fn every_program_keeps_the_promises_of_long_workloads() {
    for seed in seeds(8) {
        let found = check(seed, 300, 80, &plain).unwrap_or_else(|why| panic!("{why}"));
        println!("seed {seed}: {found}; {:?}", found.refused);
    }
}

#[test]
fn fast_commits_before_their_data_are_found() {
    let lost = |device| -> Arc<dyn Device> { Arc::new(Planted::new(Bug::LostFlush, device)) };
    assert!((1..20).any(|seed| check(seed, 80, 40, &lost).is_err()));
}

fn mounted(device: &Arc<RecordingDevice>, fast_commits: FastCommitting) -> Mount {
    let options = MountOptions { fast_commits, ..MountOptions::default() };
    Mount::open(device.clone(), options).expect("a mount")
}

fn recorded() -> Option<Arc<RecordingDevice>> {
    let (options, size) = OPTIONS[0];
    let image = Bases::default().fresh(options, size)?;
    Some(Arc::new(RecordingDevice::since(image.fork(), Arc::new(image))))
}

fn new_file() -> NewInode<'static> {
    NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 }
}

/// The number of requests to a device, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Requests {
    writes: usize,
    durable_writes: usize,
    flushes: usize,
    bytes: usize,
}

fn counted(events: &[Event]) -> Requests {
    let mut all = Requests::default();
    for event in events {
        match event {
            Event::Write { data, .. } => {
                (all.writes, all.bytes) = (all.writes + 1, all.bytes + data.len())
            }
            Event::DurableWrite { data, .. } => {
                (all.durable_writes, all.bytes) = (all.durable_writes + 1, all.bytes + data.len());
            }
            Event::Flush { .. } => all.flushes += 1,
        }
    }
    all
}

#[test]
fn an_fsync_after_an_append_writes_one_block_and_its_data() {
    const ROUNDS: usize = 5;
    let mut seen = Vec::new();
    for fast_commits in [FastCommitting::IfPossible, FastCommitting::Never] {
        let Some(device) = recorded() else { return };
        let mount = mounted(&device, fast_commits);
        let fs = mount.fs();
        let file = fs.create(&fs.root().expect("the root"), b"log", &new_file()).expect("a file");
        // The first commit of a mount marks the log as one that may contain fast commits.
        fs.sync().expect("a commit");
        let before = device.mark();
        for _ in 0..ROUNDS {
            fs.append(&file, &[7; 1024], Privilege::Root).expect("an append");
            fs.fsync(&file, SyncMode::Full).expect("an fsync");
        }
        let events = device.recording();
        seen.push(counted(&events.events()[before..]));
    }
    println!("{ROUNDS} times append and fsync: {seen:?}");
    let bytes = ROUNDS * 2 * 1024;
    let fast = Requests { writes: ROUNDS, durable_writes: ROUNDS, flushes: ROUNDS, bytes };
    assert_eq!(seen[0], fast, "data, a flush, a fast commit");
    assert!(seen[1].writes > ROUNDS && seen[1].bytes > 2 * bytes, "{seen:?}");
}

#[test]
fn threads_that_wait_for_a_fast_commit_share_the_next() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 20;
    let (options, size) = OPTIONS[0];
    let Some(image) = Bases::default().fresh(options, size) else { return };
    let slow = Pace::Time(Duration::from_millis(3));
    let below = Arc::new(GatedDevice::new(Arc::new(image.fork()), slow));
    let device = Arc::new(RecordingDevice::since(image, below));
    let mount = mounted(&device, FastCommitting::IfPossible);
    let fs = mount.fs();
    let root = fs.root().expect("the root");
    let barrier = Barrier::new(THREADS);
    fs.sync().expect("a commit");
    std::thread::scope(|scope| {
        for n in 0..THREADS {
            let (fs, root, barrier) = (fs, &root, &barrier);
            scope.spawn(move || {
                let file = fs.create(root, format!("f{n}").as_bytes(), &new_file());
                let file = file.expect("a file");
                for _ in 0..ROUNDS {
                    barrier.wait();
                    fs.append(&file, &[n as u8 + 1; 512], Privilege::Root).expect("an append");
                    fs.fsync(&file, SyncMode::Full).expect("an fsync");
                }
            });
        }
    });
    let found = mount.fs().statistics().journal;
    println!("{THREADS} threads, {ROUNDS} fsyncs each: {found:?}");
    assert!(found.fast_commits > 0);
    assert!(found.fast_commits < (THREADS * ROUNDS * 3 / 4) as u64, "none was shared");
    let state = device.recording().image_at(device.mark());
    let again = Mount::open(Arc::new(state), MountOptions::default()).expect("a mount");
    let fs = again.fs();
    let root = fs.root().expect("the root");
    for n in 0..THREADS {
        let named = fs.lookup(&root, format!("f{n}").as_bytes()).expect("a look");
        let inode = fs.get(named.expect("a file").ino, None).expect("an inode");
        let mut bytes = vec![0; ROUNDS * 512 + 1];
        let len = fs.read_at(&inode, 0, &mut bytes).expect("a read");
        assert_eq!(bytes[..len], vec![n as u8 + 1; ROUNDS * 512]);
    }
}

/// Returns the bytes of the file `log` in the root.
fn contents(device: Arc<dyn Device>) -> Vec<u8> {
    let mount = Mount::open(device, MountOptions::default()).expect("a mount");
    let fs = mount.fs();
    let found = fs.find(&fs.root().expect("the root"), b"log").expect("a look");
    let inode = found.expect("a file");
    let mut bytes = vec![0; inode.attr().size as usize];
    fs.read_at(&inode, 0, &mut bytes).expect("a read");
    bytes
}

/// Returns the bytes of the file `log` after e2fsck replayed the log.
fn contents_through_e2fsck(scratch: &Scratch, state: &OverlayDevice) -> Vec<u8> {
    let image = scratch.put(state).expect("an image");
    println!("{}", image.repair().text);
    image.assert_clean("replayed by e2fsck");
    contents(image.device())
}

/// Appends to the file and syncs it.
fn append(fs: &Fs, file: &InodeRef, bytes: &mut Vec<u8>, byte: u8) {
    bytes.extend([byte; 700]);
    fs.append(file, &[byte; 700], Privilege::Root).expect("an append");
    fs.fsync(file, SyncMode::Full).expect("an fsync");
}

#[test]
fn fast_commits_of_a_mount_that_becomes_writable_again_are_replayed() {
    let Some(device) = recorded() else { return };
    let mount = mounted(&device, FastCommitting::IfPossible);
    let fs = mount.fs();
    let file = fs.create(&fs.root().expect("the root"), b"log", &new_file()).expect("a file");
    let (mut promised, mut bytes) = (Vec::new(), Vec::new());
    for round in 1..=4 {
        for n in 0..3 {
            let before = fs.statistics().journal.fast_commits;
            append(fs, &file, &mut bytes, round);
            let is_fast = fs.statistics().journal.fast_commits > before;
            // The first fsync of a round runs a full commit, which marks the log as one that may
            // contain fast commits. The other fsyncs write fast commits.
            assert_eq!(is_fast, n > 0, "round {round}");
            promised.push((device.mark(), bytes.clone(), is_fast));
        }
        mount.make_read_only().expect("a read-only mount");
        promised.push((device.mark(), bytes.clone(), false));
        mount.make_writable().expect("a writable mount");
        promised.push((device.mark(), bytes.clone(), false));
    }
    let recording = device.recording();
    let scratch = Scratch::new(recording.base()).expect("a file for e2fsck");
    for (mark, bytes, is_fast) in promised {
        let state = recording.replay().state(mark, Kept::None);
        if is_fast {
            assert_eq!(contents_through_e2fsck(&scratch, &state), bytes, "e2fsck, event {mark}");
        }
        assert_eq!(contents(Arc::new(state)), bytes, "event {mark}");
    }
}

#[test]
fn e2fsck_replays_the_log_of_a_mount_without_fast_commits_after_one_with_them() {
    for is_closed in [true, false] {
        let Some(device) = recorded() else { return };
        let mount = mounted(&device, FastCommitting::IfPossible);
        let fs = mount.fs();
        let file = fs.create(&fs.root().expect("the root"), b"log", &new_file()).expect("a file");
        let mut bytes = Vec::new();
        (1..=3).for_each(|n| append(fs, &file, &mut bytes, n));
        assert!(fs.statistics().journal.fast_commits > 0);
        let mut at = device.mark();
        if is_closed {
            drop(file);
            mount.close().expect("an unmount");
            at = device.mark();
        }
        let state = device.recording().replay().state(at, Kept::None);
        let device = Arc::new(RecordingDevice::since(state.fork(), Arc::new(state)));
        let mount = mounted(&device, FastCommitting::default());
        let fs = mount.fs();
        let file = fs.find(&fs.root().expect("the root"), b"log").expect("a look");
        append(fs, &file.expect("a file"), &mut bytes, 4);
        assert_eq!(fs.statistics().journal.fast_commits, 0);
        let recording = device.recording();
        let scratch = Scratch::new(recording.base()).expect("a file for e2fsck");
        let state = recording.replay().state(device.mark(), Kept::None);
        assert_eq!(contents_through_e2fsck(&scratch, &state), bytes, "closed: {is_closed}");
    }
}

/// Returns how many blocks the log has, and how many of them come after the last commit block.
fn size_and_room(device: &dyn Device) -> (u32, u32) {
    let superblock = Primary::read(device).expect("a superblock").superblock;
    let log = log::find(device, &superblock, Ino::JOURNAL).expect("a log");
    let size = superblock.geometry().block_size().bytes();
    let number = |at: &u32| {
        let mut bytes = vec![0; size];
        let place = log.map.place(*at).expect("a block of the log").0;
        device.read_at(place.0 * size as u64, &mut bytes).expect("a read");
        // The header of a commit block, in big-endian order. Source: kernel documentation, "Journal
        // (jbd2)".
        let is_commit = bytes[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];
        is_commit.then(|| bytes[8..12].to_vec())
    };
    let area = log.superblock.log_area();
    let last = area.clone().filter(|at| number(at).is_some()).max_by_key(number);
    (area.end - area.start, area.end - last.map_or(area.start, |last| last + 1))
}

/// Returns states that a power cut after a fast commit leaves, each with the promised bytes of the
/// file `log`. In these states, the last commit block is at the end of the log area, or a few
/// blocks before the end.
fn states_at_the_end_of_the_log() -> Option<Vec<(OverlayDevice, Vec<u8>)>> {
    /// Approximately the number of blocks that a replay of a fast commit writes to the log.
    const NEAR: u32 = 8;
    let device = recorded()?;
    let mount = mounted(&device, FastCommitting::IfPossible);
    let fs = mount.fs();
    let root = fs.root().expect("the root");
    let file = fs.create(&root, b"log", &new_file()).expect("a file");
    fs.sync().expect("a commit");
    let now = || device.recording().replay().state(device.mark(), Kept::None);
    let size = u64::from(size_and_room(&now()).0);
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    while found.len() < 2 {
        fs.create(&root, b"other", &new_file()).expect("a file");
        fs.unlink(&root, b"other").expect("a removal");
        fs.sync().expect("a commit");
        let used = fs.statistics().journal.log_blocks;
        assert!(used < 20 * size, "the head is never at the end");
        if used % size + u64::from(NEAR) >= size {
            append(fs, &file, &mut bytes, used as u8);
            let state = now();
            assert!(size_and_room(&state).1 <= NEAR);
            found.push((state, bytes.clone()));
        }
    }
    Some(found)
}

#[test]
fn a_replay_at_the_end_of_the_log_that_is_cut_anywhere_loses_nothing() {
    let Some(states) = states_at_the_end_of_the_log() else { return };
    for (state, bytes) in states {
        let told = format!("{} blocks before the end", size_and_room(&state).1);
        let device = Arc::new(RecordingDevice::since(state.fork(), Arc::new(state)));
        recover(&(device.clone() as Arc<dyn Device>)).expect("a replay");
        let recording = device.recording();
        let events = recording.events().len();
        println!("{told}: {events} events");
        let scratch = Scratch::new(recording.base()).expect("a file for e2fsck");
        for cut in 0..=events {
            for kept in [Kept::None, Kept::All, Kept::Some { seed: cut as u64 }] {
                let state = recording.replay().state(cut, kept);
                let told = format!("{told}, cut {cut} of {events}, {kept:?}");
                assert!(contents_through_e2fsck(&scratch, &state) == bytes, "e2fsck, {told}");
                assert!(contents(Arc::new(state)) == bytes, "{told}");
            }
        }
    }
}
