//! Tests that single runs and inodes are claimed, allocated and freed correctly.

use super::*;

const SMALL: &[&str] = &["-b", "1024"];

#[test]
fn a_claim_starts_at_its_goal_and_goes_back_when_dropped() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let free = f.groups.free_counts();
    let goal = f.claim(9000, 10).unwrap().start();
    let claim = f.claim(goal.0 + 100, 10).unwrap();
    assert_eq!((claim.start(), claim.len()), (Block(goal.0 + 100), 10));
    let behind = f.claim(goal.0 + 100, 10).unwrap();
    assert_eq!(behind.start(), Block(goal.0 + 110), "the next that is free");
    drop((claim, behind));
    assert_eq!(f.claim(goal.0 + 100, 20).unwrap().start(), Block(goal.0 + 100));
    assert_eq!(f.groups.free_counts(), free);
}

#[test]
fn a_dropped_part_of_a_split_claim_is_free_again() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let total = f.groups.space().total();
    let mut claim = f.claim(9000, 100).unwrap();
    let front = claim.split_front(30);
    assert_eq!((front.len(), claim.len(), claim.start().0 - front.start().0), (30, 70, 30));
    let at = front.start();
    drop(front);
    assert_eq!(f.groups.space().total(), total - 70);
    assert_eq!(f.claim(at.0, 40).unwrap().start().0, at.0 + 100, "only 30 are free there");
    drop(claim);
    assert_eq!(f.groups.space().total(), total);
}

#[test]
fn blocks_freed_in_the_transaction_that_allocated_them_are_free_at_once() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let mut tx = Transaction::new(5);
    let claim = f.claim(9000, 8).unwrap();
    let at = claim.start();
    f.groups.allocate(&mut tx, claim);
    f.groups.free_blocks(&mut tx, at, 8).unwrap();
    assert_eq!(f.groups.pending(), 0);
    assert_eq!(f.claim(at.0, 8).unwrap().start(), at);
    assert!(tx.released.is_empty());
}

#[test]
fn other_blocks_are_free_once_the_transaction_is_durable() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let mut tx = Transaction::new(5);
    let claim = f.claim(9000, 8).unwrap();
    let at = claim.start();
    f.groups.allocate(&mut tx, claim);
    f.commit(tx);
    let mut tx = Transaction::new(6);
    f.groups.free_blocks(&mut tx, Block(at.0 + 2), 4).unwrap();
    assert_eq!((f.groups.pending(), tx.charged), (4, 2));
    assert_ne!(f.claim(at.0 + 2, 4).unwrap().start().0, at.0 + 2);
    f.commit(tx);
    assert_eq!(f.groups.pending(), 0);
    assert_eq!(f.claim(at.0 + 2, 4).unwrap().start().0, at.0 + 2);
}

#[test]
fn every_block_can_be_claimed_and_the_reserve_by_the_privileged() {
    let setup = Setup { reserved: 1000, ..setup(Arc::new(Scaling)) };
    let Some(f) = Fixture::set_up(32, SMALL, setup) else { return };
    let free = f.groups.free_counts().0;
    let mut all = Vec::new();
    while let Ok(claim) = f.claim(1, 700) {
        all.push(claim);
    }
    let held = |all: &[Claim]| all.iter().map(|claim| u64::from(claim.len())).sum::<u64>();
    assert_eq!(held(&all), free - 1000);
    assert!(matches!(f.claim(1, 1), Err(Error::NoSpace)));
    while let Ok(claim) = f.claim_as(1, 700, Privilege::Root) {
        all.push(claim);
    }
    assert_eq!(held(&all), free);
    let mut seen: Vec<(u64, u64)> = all
        .iter()
        .map(|claim| (claim.start().0, claim.start().0 + u64::from(claim.len())))
        .collect();
    seen.sort();
    assert!(seen.windows(2).all(|two| two[0].1 <= two[1].0), "no block twice");
    all.clear();
    assert_eq!(f.groups.space().total(), free);
    assert!(f.claim(1, 4000).unwrap().len() >= 4000, "a long run again");
}

#[test]
fn the_longest_run_is_found_when_nothing_long_is_left() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let mut all = Vec::new();
    while let Ok(claim) = f.claim(1, 100) {
        all.push(claim);
    }
    // The group has one free run of 37 blocks among free runs of 2 blocks.
    for (i, claim) in all.iter_mut().enumerate() {
        let keep = claim.len().saturating_sub(if i == 111 { 37 } else { 2 });
        let front = claim.split_front(keep);
        *claim = front;
    }
    let request = |at_least| Request {
        goal: Block(1),
        want: 100,
        ahead: 0,
        at_least,
        privilege: Privilege::Ordinary,
        stream: None,
        owner: None,
    };
    let best = f.groups.claim(&f.device, &request(30)).unwrap();
    assert_eq!(best.len(), 37);
    let any = f.groups.claim(&f.device, &request(30)).unwrap();
    assert!(any.len() >= 1 && any.len() < 30, "anything at last");
}

#[test]
fn a_goal_outside_of_the_file_system_means_anywhere() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    for goal in [0, 32 << 10, u64::MAX] {
        assert_eq!(f.claim(goal, 5).unwrap().len(), 5);
    }
}

#[test]
fn inodes_come_in_order_and_reserved_ones_never() {
    let Some(f) = Fixture::new(32, SMALL) else { return };
    let first = f.claim_inode(FileType::Regular, 2).unwrap();
    let second = f.claim_inode(FileType::Regular, 2).unwrap();
    assert!(first.ino() >= f.geometry.first_ino());
    assert_eq!((first.group(), second.ino().0), (Group(0), first.ino().0 + 1));
    let mut tx = Transaction::new(3);
    let (ino, before) = (first.ino(), f.groups.free_counts());
    f.groups.allocate_inode(&mut tx, first, FileType::Regular);
    assert_eq!(f.groups.free_counts().1, before.1 - 1);
    f.groups.free_inode(&mut tx, ino, FileType::Regular).unwrap();
    assert_eq!(f.groups.free_counts(), before);
    assert_eq!(f.claim_inode(FileType::Regular, 2).unwrap().ino(), ino, "claimable at once");
    assert!(f.groups.free_inode(&mut tx, Ino(2), FileType::Directory).is_err());
}

#[test]
fn every_inode_can_be_claimed() {
    let Some(f) = Fixture::new(16, SMALL) else { return };
    let mut all = Vec::new();
    while let Ok(claim) = f.claim_inode(FileType::Regular, 2) {
        all.push(claim);
    }
    assert_eq!(all.len() as u64, f.groups.free_counts().1);
    let mut numbers: Vec<u32> = all.iter().map(|claim| claim.ino().0).collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), all.len());
    let some = all.swap_remove(77).ino();
    assert_eq!(f.claim_inode(FileType::Directory, 2).unwrap().ino(), some);
}

#[test]
fn two_step_claims_and_waiting_choosers_give_the_same_without_competitors() {
    let Some(f) = Fixture::set_up(32, SMALL, setup(Arc::new(Waiting))) else { return };
    let one = f.claim_inode(FileType::Directory, 2).unwrap();
    let two = f.claim_inode(FileType::Directory, 2).unwrap();
    assert_eq!((one.group(), two.group()), (Group(0), Group(0)));
    let long = f.claim(1, 8000).unwrap();
    let next = f.claim(1, 8000).unwrap();
    assert!(long.len() == 8000 || next.len() == 8000 || long.start() != next.start());
}
