//! Many threads use the same groups: no block is given to two of them, and no block is lost.

use super::*;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};

/// A flag for each block or inode, set while a thread owns the item. The flag must be clear when a
/// thread gets the item.
struct Owned(Vec<AtomicBool>);

impl Owned {
    fn new(count: u64) -> Owned {
        Owned((0..count).map(|_| AtomicBool::new(false)).collect())
    }

    fn take(&self, range: std::ops::Range<u64>) {
        for at in range {
            assert!(!self.0[at as usize].swap(true, Ordering::SeqCst), "{at} given twice");
        }
    }

    fn give(&self, range: std::ops::Range<u64>) {
        for at in range {
            assert!(self.0[at as usize].swap(false, Ordering::SeqCst));
        }
    }
}

fn blocks_of(claim: &Claim) -> std::ops::Range<u64> {
    claim.start().0..claim.start().0 + u64::from(claim.len())
}

#[test]
fn nothing_is_claimed_twice_and_nothing_is_lost() {
    let all: [Arc<dyn Allocation>; 2] = [Arc::new(Scaling), Arc::new(Waiting)];
    for allocation in all {
        let setup = Setup { reserved: 50, ..setup(allocation) };
        let Some(f) = Fixture::set_up(16, &["-b", "1024"], setup.clone()) else { return };
        nothing_is_given_twice(&f);
        let setup = Setup { bitmap_bytes: 0, ..setup };
        let Some(f) = Fixture::set_up(16, &["-b", "1024", "-g", "256"], setup) else { return };
        nothing_is_given_twice(&f);
    }
}

fn nothing_is_given_twice(f: &Fixture) {
    let total = f.groups.space().total();
    let (blocks, inodes) = (Owned::new(16 << 10), Owned::new(1 << 16));
    let mut rng = seeded("nothing_is_given_twice");
    std::thread::scope(|s| {
        for _ in 0..6 {
            let mut rng = rng.fork();
            let (blocks, inodes) = (&blocks, &inodes);
            s.spawn(move || hammer(f, blocks, inodes, &mut rng));
        }
    });
    assert_eq!(f.groups.space().total(), total);
    let mut all = Vec::new();
    while let Ok(claim) = f.claim_as(rng.u64(0..1 << 14), 900, Privilege::Root) {
        all.push(claim);
    }
    assert_eq!(all.iter().map(|claim| u64::from(claim.len())).sum::<u64>(), total);
}

fn hammer(f: &Fixture, blocks: &Owned, inodes: &Owned, rng: &mut fastrand::Rng) {
    let (mut claims, mut numbers) = (Vec::new(), Vec::new());
    for _ in 0..3000 {
        match rng.u32(0..8) {
            0..4 => {
                let want = if rng.u32(0..9) == 0 { 2500 } else { rng.u32(1..30) };
                match f.claim(rng.u64(0..1 << 14), want) {
                    Ok(claim) => {
                        blocks.take(blocks_of(&claim));
                        claims.push(claim);
                    }
                    Err(Error::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            4..6 if !claims.is_empty() => {
                let claim = claims.swap_remove(rng.usize(0..claims.len()));
                blocks.give(blocks_of(&claim));
                drop(claim);
            }
            6 => match f.claim_inode(FileType::Regular, rng.u32(1..4000)) {
                Ok(claim) => {
                    inodes.take(claim.ino().0.into()..u64::from(claim.ino().0) + 1);
                    numbers.push(claim);
                }
                Err(Error::NoSpace) => {}
                Err(error) => panic!("{error}"),
            },
            _ => {
                if let Some(claim) = numbers.pop() {
                    inodes.give(claim.ino().0.into()..u64::from(claim.ino().0) + 1);
                }
            }
        }
        if claims.len() > 40 {
            claims.drain(..20).for_each(|claim| blocks.give(blocks_of(&claim)));
        }
    }
    claims.iter().for_each(|claim| blocks.give(blocks_of(claim)));
    numbers.iter().for_each(|claim: &InodeClaim| {
        inodes.give(claim.ino().0.into()..u64::from(claim.ino().0) + 1);
    });
}

#[test]
fn the_last_block_is_found_by_each_caller_that_may_use_it() {
    let Some(f) = Fixture::new(16, &["-b", "1024"]) else { return };
    let mut all = Vec::new();
    while let Ok(claim) = f.claim(1, 5000) {
        all.push(claim);
    }
    // Four blocks remain, and each of the four threads holds at most one block at any time, so no
    // claim fails.
    let last = all.last_mut().expect("some");
    let keep = last.len() - 4;
    let front = last.split_front(keep);
    *last = front;
    std::thread::scope(|s| {
        for thread in 0..4 {
            let f = &f;
            s.spawn(move || {
                for i in 0..3000u64 {
                    let claim = f.claim(thread * 4000 + i, 1).expect("one for each");
                    assert_eq!(claim.len(), 1);
                }
            });
        }
    });
}
