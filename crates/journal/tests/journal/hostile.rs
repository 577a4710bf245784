//! Tests that recovery distinguishes an interrupted commit from corruption, and that a damaged log
//! never makes recovery panic, hang or write where it must not.

use crate::toy::*;
use lanefs_device::{
    Device, Event, FaultyDevice, Operation, OverlayDevice, RamDevice, RecordingDevice,
};
use lanefs_journal::recovery::{Input, Recovered, recover};
use lanefs_journal::{Config, Error, Journal, Log};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::Block;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::jbd2::{
    BlockKind, Header, JournalCompat, JournalIncompat, JournalSuperblock, Sequence,
};

const CELLS: usize = 30;

/// Creates a device whose log has three transactions of ten cells each, with `features`.
fn three_transactions(features: JournalIncompat) -> Arc<RamDevice> {
    let ram = Arc::new(image());
    let log = Log { device: None, map: log_map(), superblock: superblock(&*ram), features };
    let config = Config { log: Some(log), ..Config::new(ram.clone(), block_size()) };
    let journal: ToyJournal = Journal::start(config).unwrap();
    let toy = Toy::new(CELLS);
    for n in 0..3 {
        let mut handle = journal.join(20).unwrap();
        (0..10).for_each(|cell| toy.change(&mut handle, cell + 10 * n, |_| n as i64 + 1));
        if n > 0 {
            toy.free(&mut handle, 10 * n - 1);
        }
        drop(handle);
        journal.commit_now(&toy).unwrap();
    }
    ram
}

fn v3() -> JournalIncompat {
    JournalIncompat::BIT64 | JournalIncompat::CSUM_V3
}

/// Returns the byte offset of a log block.
fn offset(log_block: u32) -> u64 {
    log_map().place(log_block).unwrap().0.0 * BS as u64
}

/// Returns the log blocks of this kind, in order.
fn blocks_of(device: &dyn Device, kind: BlockKind) -> Vec<u32> {
    (1..LOG_BLOCKS)
        .filter(|log_block| {
            let mut bytes = vec![0; BS];
            device.read_at(offset(*log_block), &mut bytes).unwrap();
            Header::decode(&bytes).is_some_and(|header| header.kind == kind)
        })
        .collect()
}

fn flip(device: &dyn Device, log_block: u32, byte: u64) {
    let mut bytes = [0];
    device.read_at(offset(log_block) + byte, &mut bytes).unwrap();
    device.write_at(offset(log_block) + byte, &[bytes[0] ^ 0x10]).unwrap();
}

fn recover_on(device: &dyn Device) -> Result<Recovered, Error> {
    let (map, superblock) = (log_map(), superblock(device));
    let source = Input { device, map: &map, superblock: &superblock, blocks: BLOCKS };
    recover(&source, device)
}

#[test]
fn an_undamaged_log_gives_all_three_transactions() {
    let device = three_transactions(v3());
    let recovered = recover_on(&*device).unwrap();
    assert_eq!((recovered.transactions, recovered.revoked), (3, 2));
    assert_eq!(blocks_of(&*device, BlockKind::Commit).len(), 3);
    assert_eq!(stamp_at(&*device, 29), 3);
}

#[test]
fn a_wrong_commit_block_ends_the_log_if_it_is_the_last_and_is_corruption_before_that() {
    let device = three_transactions(v3());
    let commits = blocks_of(&*device, BlockKind::Commit);
    flip(&*device, commits[2], 40);
    assert_eq!(recover_on(&*device).unwrap().transactions, 2);
    assert_eq!(stamp_at(&*device, 29), 0);

    let device = three_transactions(v3());
    flip(&*device, commits[1], 40);
    assert!(matches!(recover_on(&*device), Err(Error::Corruption(_))));
    assert_eq!(stamps(&*device, CELLS), [0; CELLS], "nothing is written from a damaged log");
}

#[test]
fn a_wrong_descriptor_revoke_or_copy_of_a_committed_transaction_is_corruption() {
    let kinds = [BlockKind::Descriptor, BlockKind::Revoke];
    for kind in kinds {
        let device = three_transactions(v3());
        flip(&*device, *blocks_of(&*device, kind).last().unwrap(), 20);
        assert!(matches!(recover_on(&*device), Err(Error::Corruption(_))), "{kind:?}");
    }
    let device = three_transactions(v3());
    let descriptor = *blocks_of(&*device, BlockKind::Descriptor).last().unwrap();
    flip(&*device, descriptor + 3, 500);
    assert!(matches!(recover_on(&*device), Err(Error::Corruption(_))));
    assert_eq!(stamps(&*device, CELLS), [0; CELLS]);
}

#[test]
fn a_wrong_copy_of_a_revoked_block_is_ignored() {
    let device = three_transactions(v3());
    let descriptors = blocks_of(&*device, BlockKind::Descriptor);
    // This damages the copy of cell 9, the tenth cell of the first transaction. The second
    // transaction frees and revokes this cell, so its copy is not replayed.
    flip(&*device, descriptors[0] + 10, 500);
    assert_eq!(recover_on(&*device).unwrap().transactions, 3);
}

#[test]
fn with_async_commit_a_last_transaction_without_its_copies_was_interrupted() {
    let device = three_transactions(v3());
    let mut superblock = superblock(&*device);
    let incompat = superblock.incompat() | JournalIncompat::ASYNC_COMMIT;
    superblock.set_features(JournalCompat::empty(), incompat);
    device.write_at(offset(0), &superblock.encode()).unwrap();
    let descriptors = blocks_of(&*device, BlockKind::Descriptor);
    flip(&*device, descriptors[2] + 3, 500);
    let recovered = recover_on(&*device).unwrap();
    // The third transaction is dropped, and its revoke is not counted.
    assert_eq!((recovered.transactions, recovered.revoked), (2, 1));
    assert_eq!(stamp_at(&*device, 19), 2);
    assert_eq!(stamp_at(&*device, 29), 0);
}

#[test]
fn a_copy_that_would_go_outside_or_into_the_log_is_refused_before_anything_is_written() {
    for wild in [BLOCKS, u64::MAX >> 16, 300, 4] {
        let device = three_transactions(JournalIncompat::BIT64);
        let descriptor = blocks_of(&*device, BlockKind::Descriptor)[1];
        // The third tag follows the header, a tag with a UUID, and a tag without one.
        let at = offset(descriptor) + 12 + 12 + 16 + 12;
        device.write_at(at, &(wild as u32).to_be_bytes()).unwrap();
        device.write_at(at + 8, &((wild >> 32) as u32).to_be_bytes()).unwrap();
        let refused = recover_on(&*device);
        assert!(matches!(refused, Err(Error::WildBlock { block: Block(b) }) if b == wild));
        assert_eq!(stamps(&*device, CELLS), [0; CELLS]);
    }
}

#[test]
fn fast_commits_count_and_stale_or_torn_ones_do_not_matter() {
    let device = three_transactions(v3());
    let mut superblock = superblock(&*device);
    let end = Sequence(superblock.sequence().0 + 3);
    superblock
        .set_features(JournalCompat::empty(), superblock.incompat() | JournalIncompat::FAST_COMMIT);
    let area = superblock.fast_commit_area();
    // `decode` refuses this superblock, because a journal of this size is too short for fast
    // commits. The test passes the superblock to `recover` without `decode`.
    let refused = JournalSuperblock::decode(&superblock.encode(), block_size(), LOG_BLOCKS);
    assert!(refused.is_err() && !area.is_empty());
    let [whole, torn] = [0, 1];
    for (tid, wrong, counts) in
        [(end.0, whole, true), (end.0, torn, false), (end.0 - 1, whole, false), (0, whole, false)]
    {
        // A HEAD tag and a TAIL tag; the tail's length reaches to the end of the block.
        let mut commit = vec![0u8; BS];
        commit[..2].copy_from_slice(&9u16.to_le_bytes());
        commit[2..4].copy_from_slice(&8u16.to_le_bytes());
        commit[8..12].copy_from_slice(&tid.to_le_bytes());
        commit[12..14].copy_from_slice(&8u16.to_le_bytes());
        commit[14..16].copy_from_slice(&(BS as u16 - 16).to_le_bytes());
        commit[16..20].copy_from_slice(&tid.to_le_bytes());
        let sum = Seed::from_raw(0).chain(&commit[..20]).value() ^ wrong;
        commit[20..24].copy_from_slice(&sum.to_le_bytes());
        device.write_at(offset(area.start), &commit).unwrap();
        let map = log_map();
        let source = Input { device: &*device, map: &map, superblock: &superblock, blocks: BLOCKS };
        let target = OverlayDevice::new(device.clone(), u64::MAX);
        let recovered = recover(&source, &target).expect("a fast commit without changes");
        assert_eq!(recovered.fast_commits, u32::from(counts), "{tid}, {wrong}");
    }
}

#[test]
fn a_log_that_is_not_empty_cannot_be_started_nor_one_without_a_place() {
    let device = three_transactions(v3());
    let started: Result<ToyJournal, _> = Journal::start(config(device));
    assert!(matches!(started.err(), Some(Error::NeedsRecovery)));
    let device = Arc::new(image());
    let mut short = config(device);
    if let Some(log) = &mut short.log {
        log.map = lanefs_journal::LogMap::new([(0, Block(300), 600)], 600, BLOCKS).unwrap();
    }
    let started: Result<ToyJournal, _> = Journal::start(short);
    assert!(matches!(started.err(), Some(Error::BadLogMap { log_block: 600 })));
}

/// Writes random bytes into the log. Recovery then succeeds or returns an error, and never writes a
/// block of the log. Only one log in three has checksums, because checksums detect nearly all
/// damage before other checks see it.
#[test]
fn no_log_makes_recovery_panic_hang_or_write_where_it_must_not() {
    let seed = 31;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let bases = [JournalIncompat::empty(), JournalIncompat::BIT64, v3()].map(three_transactions);
    let (mut replayed, mut refused) = (0, 0);
    for round in 0..900 {
        let base = &bases[round % bases.len()];
        let broken = OverlayDevice::new(base.clone(), u64::MAX);
        for _ in 0..rng.usize(1..6) {
            let log_block = rng.u32(1..50);
            let byte = if rng.bool() { rng.u64(..64) } else { rng.u64(..BS as u64) };
            let value = *rng.choice(&[0, 1, 0xff, 0x80, 5, 2]).unwrap_or(&0);
            broken.write_at(offset(log_block) + byte, &[value]).unwrap();
        }
        if rng.u8(..4) == 0 {
            let mut superblock = superblock(&broken);
            superblock.set_start(Some(rng.u32(1..LOG_BLOCKS)));
            superblock.set_sequence(Sequence(rng.u32(..8)));
            broken.write_at(offset(0), &superblock.encode()).unwrap();
        }
        let target = RecordingDevice::new(Arc::new(broken)).unwrap();
        match recover_on(&target) {
            Ok(_) => replayed += 1,
            Err(_) => refused += 1,
        }
        for event in target.recording().events() {
            let Event::Write { offset, data } = event else { continue };
            for at in (*offset..*offset + data.len() as u64).step_by(BS) {
                let block = Block(at / BS as u64);
                assert!(!log_map().contains(block), "round {round}: {block} of the log written");
            }
        }
    }
    assert!(replayed > 100 && refused > 100, "{replayed} replayed, {refused} refused");
}

#[test]
fn a_bad_descriptor_before_an_empty_log_does_not_make_all_of_it_be_read() {
    let device = three_transactions(v3());
    let last = *blocks_of(&*device, BlockKind::Descriptor).last().unwrap();
    let commit = *blocks_of(&*device, BlockKind::Commit).last().unwrap();
    flip(&*device, last, 20);
    device.write_at(offset(commit), &[0; BS]).unwrap();
    let counted = FaultyDevice::new(device, None);
    assert_eq!(recover_on(&counted).unwrap().transactions, 2);
    let reads = counted.count(Operation::Read);
    assert!(reads < 200, "{reads} reads");
}
