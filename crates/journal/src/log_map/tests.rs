use crate::log_map::*;

#[test]
fn every_log_block_is_found_and_only_those() {
    let runs = [(0, Block(100), 10), (10, Block(50), 5), (15, Block(110), 1)];
    let map = LogMap::new(runs, 16, 111).unwrap();
    assert_eq!(map.len(), 16);
    assert_eq!(map.place(0), Some((Block(100), 10)));
    assert_eq!(map.place(9), Some((Block(109), 1)));
    assert_eq!(map.place(12), Some((Block(52), 3)));
    assert_eq!(map.place(15), Some((Block(110), 1)));
    assert_eq!(map.place(16), None);
    let inside = (0..200).filter(|b| map.contains(Block(*b))).count();
    assert_eq!(inside, 16);
    assert!(map.contains(Block(54)) && !map.contains(Block(55)) && !map.contains(Block(49)));
}

#[test]
fn a_log_on_its_own_device_has_no_block_of_the_file_system() {
    let map = LogMap::of_device(Block(1), 1024);
    assert_eq!((map.superblock(), map.place(1023)), (Block(1), Some((Block(1023), 1))));
    assert!(!map.contains(Block(500)));
    assert_eq!((map.runs().count(), map.place(1024)), (0, None));
}

#[test]
fn runs_that_meet_or_leave_the_file_system_are_refused() {
    let bad = |runs: &[(u32, Block, u32)], blocks| {
        let len = runs.iter().map(|run| run.2).fold(0, u32::saturating_add);
        matches!(LogMap::new(runs.to_vec(), len, blocks), Err(Error::BadLogMap { .. }))
    };
    assert!(bad(&[(0, Block(10), 5), (5, Block(14), 5)], 100));
    assert!(bad(&[(0, Block(14), 5), (5, Block(10), 5)], 100));
    assert!(bad(&[(0, Block(96), 5)], 100));
    assert!(bad(&[(0, Block(u64::MAX), 5)], 100));
    assert!(bad(&[(0, Block(10), 0)], 100));
    assert!(bad(&[(0, Block(10), 5), (4, Block(20), 5)], 100));
    assert!(bad(&[(0, Block(0), u32::MAX), (u32::MAX, Block(1 << 33), 5)], u64::MAX));
    assert_eq!(LogMap::new([], 0, 100).unwrap().place(0), None);
}

#[test]
fn a_log_with_a_hole_or_with_blocks_beyond_its_size_is_refused() {
    let hole = |runs: &[(u32, Block, u32)], len| match LogMap::new(runs.to_vec(), len, 100) {
        Err(Error::LogHole { log_block }) => log_block,
        other => panic!("{other:?}"),
    };
    assert_eq!(hole(&[], 1), 0);
    assert_eq!(hole(&[(1, Block(10), 9)], 10), 0);
    assert_eq!(hole(&[(0, Block(10), 5), (6, Block(15), 4)], 10), 5);
    // As many blocks as the size says, with the last one beyond it.
    assert_eq!(hole(&[(0, Block(10), 5), (6, Block(15), 5)], 10), 5);
    assert_eq!(hole(&[(0, Block(10), 9)], 10), 9);
    let beyond = LogMap::new([(0, Block(10), 11)], 10, 100);
    assert!(matches!(beyond, Err(Error::LogBeyondSize { log_block: 10, blocks: 10 })));
}
