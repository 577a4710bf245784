//! Damaged fast commits: each kind of damage is reported by its own error, nothing is written, and
//! nothing panics.

use lanefs_device::{Device, RamDevice};
use lanefs_ext4::log;
use lanefs_offline::{look, recover};
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::jbd2::{JournalIncompat, Sequence};
use lanefs_ondisk::superblock::{
    OrphanEntries, Recovery, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use lanefs_suites::cuts::in_memory;
use lanefs_suites::image::Image;
use std::sync::Arc;

const ADD: u16 = 1;
const DEL: u16 = 2;
const CREAT: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;
const TID: u32 = 5;
const BLOCK: usize = 1024;
const FREE: u32 = 20;
const REGULAR: u16 = 0o100_644;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn record(tag: u16, value: &[u8]) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat()
}

fn name(tag: u16, parent: u32, ino: u32, name: &str) -> Vec<u8> {
    record(tag, &[&words(&[parent, ino]), name.as_bytes()].concat())
}

fn added(ino: u32, start: u32, len: u16, block: u32) -> Vec<u8> {
    record(
        ADD,
        &[&words(&[ino, start])[..], &len.to_le_bytes(), &[0; 2], &words(&[block])].concat(),
    )
}

fn removed(ino: u32, start: u32, len: u32) -> Vec<u8> {
    record(DEL, &words(&[ino, start, len]))
}

/// Returns an `INODE` record. Regular files and directories have the flag for an extent tree.
fn inode(ino: u32, mode: u16, len: usize) -> Vec<u8> {
    let mut raw = vec![0; len];
    raw[..2].copy_from_slice(&mode.to_le_bytes());
    raw[26..28].copy_from_slice(&1u16.to_le_bytes());
    if mode == REGULAR || mode & 0xf000 == 0x4000 {
        raw[32..36].copy_from_slice(&0x80000u32.to_le_bytes());
    }
    if mode == REGULAR {
        raw[4..8].copy_from_slice(&4096u32.to_le_bytes());
    }
    raw[100..104].copy_from_slice(&77u32.to_le_bytes());
    record(INODE, &[&words(&[ino])[..], &raw].concat())
}

/// Returns a device on which an empty log is followed by one fast commit with `records`.
fn with(image: &Image, records: &[Vec<u8>]) -> Arc<dyn Device> {
    let device = in_memory(image);
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).expect("a read");
    let mut superblock = Superblock::decode(&bytes).expect("a superblock");
    superblock.set_dirty_features(Recovery::Needed, OrphanEntries::Absent);
    device.write_at(SUPERBLOCK_OFFSET, &superblock.encode()).expect("a write");
    let mut log = log::locate(&*device, &superblock, None).expect("a log").expect("a journal");
    // The kernel sets this feature when it mounts.
    let features = log.superblock.incompat() | JournalIncompat::FAST_COMMIT;
    log.superblock.set_features(log.superblock.compat(), features);
    let area = log.superblock.fast_commit_area();
    log.superblock.set_start(Some(log.superblock.log_area().start));
    log.superblock.set_sequence(Sequence(TID));
    let at = |block: u32| log.map.place(block).expect("a place").0.0 * BLOCK as u64;
    device.write_at(at(0), &log.superblock.encode()).expect("a write");
    let commit = fast_commit(records);
    for (n, block) in area.zip(commit.chunks(BLOCK)) {
        device.write_at(at(n), block).expect("a write");
    }
    device
}

/// Returns whole blocks with a fast commit.
fn fast_commit(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = record(HEAD, &words(&[0, TID]));
    let pad = |bytes: &mut Vec<u8>, needs: usize| {
        let left = BLOCK - bytes.len() % BLOCK;
        if left < needs {
            let padding = if left < 4 { vec![0; left] } else { record(PAD, &vec![0; left - 4]) };
            bytes.extend(padding);
        }
    };
    for record in records {
        pad(&mut bytes, record.len() + 4);
        bytes.extend(record);
    }
    pad(&mut bytes, 12);
    let left = BLOCK - bytes.len() % BLOCK;
    let mut tail = record(TAIL, &vec![0; left - 4]);
    tail[4..8].copy_from_slice(&TID.to_le_bytes());
    let sum = Seed::from_raw(0).chain(&bytes).chain(&tail[..8]).value();
    tail[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes.extend(tail);
    bytes
}

fn image(options: &str) -> Option<Image> {
    Image::make(&format!("-b 1024 -O fast_commit -J size=2 {options}"), "16M")
}

/// Returns the error of a recovery, which must leave the device unchanged.
#[track_caller]
fn refused(image: &Image, records: &[Vec<u8>]) -> String {
    let device = with(image, records);
    let before = RamDevice::copy_of(&device).expect("memory");
    let error = recover(&device).expect_err("an error").to_string();
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for at in (0..device.len()).step_by(1 << 20) {
        device.read_at(at, &mut a).expect("a read");
        before.read_at(at, &mut b).expect("a read");
        assert!(a == b, "{error}: written at {at}");
    }
    error
}

#[test]
fn each_fast_commit_that_does_not_fit_the_file_system_is_refused_with_its_reason() {
    let Some(image) = image("") else { return };
    let file = || inode(FREE, REGULAR, 160);
    let directory = || inode(FREE, 0o040_755, 160);
    let fifo = || inode(FREE, 0o010_644, 160);
    let in_root = |name: &str| self::name(CREAT, 2, FREE, name);
    let in_root_again = || name(LINK, 2, 11, "again");
    let full = vec![
        directory(),
        in_root("d"),
        inode(FREE + 1, REGULAR, 160),
        name(CREAT, FREE, FREE + 1, "a"),
        name(UNLINK, 2, FREE, "d"),
    ];
    for (records, why) in [
        (full, "remove a directory with names"),
        (vec![inode(5, REGULAR, 160)], "no file can have this inode"),
        (vec![inode(8, REGULAR, 160)], "no file can have this inode"),
        (vec![inode(0, REGULAR, 160)], "no file can have this inode"),
        (vec![inode(u32::MAX, REGULAR, 160)], "no file can have this inode"),
        (vec![added(FREE, 0, 1, 14000)], "the inode is not in use"),
        (vec![in_root("a")], "the inode is not in use"),
        (vec![fifo(), added(FREE, 0, 1, 14000)], "not a regular file"),
        (vec![file(), in_root("a"), name(LINK, FREE, FREE, "b")], "not a directory"),
        (vec![file(), in_root("lost+found")], "another inode has already: inode 11"),
        (vec![inode(FREE, REGULAR, 300)], "a record of 300 bytes"),
        (vec![file(), added(FREE, 0, 2, 16383)], "block 16383 is outside"),
        (vec![file(), added(FREE, 0, 1, u32::MAX)], "is outside"),
        (vec![file(), added(FREE, 0, 1, 1)], "claims block 1, which holds metadata"),
        (vec![file(), added(FREE, 0, 400, 2)], "which holds metadata"),
        (vec![directory(), added(FREE, 0, 1, 14000)], "of a directory's blocks"),
        (vec![in_root_again()], "give a directory another name"),
        (vec![inode(2, REGULAR, 160)], "no file can have this inode"),
        (vec![inode(FREE, 0, 160)], "of an inode without a type"),
        (vec![inode(FREE, 0o100_600, 160)], "of a file with a block map"),
        (vec![record(10, &[0; 8])], "unknown tag 10"),
        (vec![record(UNLINK, &[0; 8])], "a name that no file can have"),
    ] {
        let error = refused(&image, &records);
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn combinations_that_cannot_be_replayed_are_refused_by_name() {
    for (options, why) in [("-O bigalloc", "together with bigalloc"), ("-O quota", "with quota")] {
        let Some(image) = image(options) else { return };
        let records = [inode(FREE, REGULAR, 160), name(CREAT, 2, FREE, "a")];
        let device = with(&image, &records);
        let error = look(&device).map(|_| ()).expect_err("an error").to_string();
        assert!(error.contains(why) || error.contains("recovery needs to write"), "{error}");
    }
}

#[test]
fn a_valid_fast_commit_made_by_hand_is_replayed() {
    let Some(image) = image("") else { return };
    let records = [
        inode(FREE, REGULAR, 160),
        added(FREE, 3, 2, 14000),
        removed(FREE, 4, 10),
        name(CREAT, 2, FREE, "a"),
        inode(FREE + 1, 0o040_755, 160),
        name(CREAT, 2, FREE + 1, "d"),
        name(LINK, FREE + 1, FREE, "b"),
        name(UNLINK, 2, FREE, "a"),
        name(UNLINK, 2, FREE + 2, "never there"),
    ];
    let device = with(&image, &records);
    assert_eq!(look(&device).expect("a look").fast_commits, 1);
    recover(&device).expect("a recovery");
    let repaired = Image::empty();
    RamDevice::copy_of(&device).expect("memory").to_file(repaired.path()).expect("a file");
    repaired.assert_clean("made by hand");
}

/// The records are random, but their checksums are right. A recovery must end either with an error,
/// or with a file system that needs no further recovery.
#[test]
fn random_fast_commits_neither_panic_nor_leave_work() {
    let Some(image) = image("-N 200") else { return };
    let seed = 20261123;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut replayed, rounds) = (0, 150);
    for round in 0..rounds {
        let records: Vec<Vec<u8>> = (0..rng.usize(1..12)).map(|_| random(&mut rng)).collect();
        let device = with(&image, &records);
        if recover(&device).is_ok() {
            replayed += 1;
            let again = look(&device).expect("a look");
            assert!(!again.needs_recovery(), "round {round}: {again:?}");
        }
    }
    println!("{replayed} of {rounds} replayed");
    assert!(replayed > rounds / 20, "{replayed}");
}

fn random(rng: &mut fastrand::Rng) -> Vec<u8> {
    let ino = rng.choice([2, 11, 12, FREE, FREE, FREE, FREE + 1]).expect("a number");
    let text = ["a", "b", "lost+found", "c"][rng.usize(..4)];
    let parent = if rng.u8(..4) == 0 { ino } else { 2 };
    let mut record = match rng.u8(..8) {
        0 => added(ino, rng.u32(..50), rng.u16(..20), rng.u32(10_000..17_000)),
        1 => removed(ino, rng.u32(..50), rng.u32(..50)),
        2 => name(CREAT, parent, ino, text),
        3 => name(LINK, parent, ino, text),
        4 => name(UNLINK, parent, ino, text),
        5 => inode(ino, 0o040_755, 160),
        _ => inode(ino, REGULAR, 160),
    };
    if rng.u8(..8) == 0 {
        let at = rng.usize(4..record.len());
        record[at] ^= 1 << rng.u8(..8);
    }
    record
}
