//! Tests the bitmaps and descriptors that commits write, with random transactions. While one
//! transaction runs, the commit of the previous transaction captures the groups that the previous
//! transaction changed: it copies their bitmaps and descriptors as that transaction left them.

use crate::alloc::tests::claims::imagined_with;
use crate::alloc::tests::summary::Summaries;
use crate::alloc::tests::*;
use crate::alloc::{Allocation, Scaling};
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The blocks and inodes that are allocated at present.
#[derive(Clone, Default)]
struct Model {
    blocks: BTreeSet<u64>,
    inodes: BTreeMap<u32, FileType>,
}

struct Run<'a> {
    f: &'a Fixture,
    rng: fastrand::Rng,
    model: Model,
    claims: Vec<Claim>,
    /// Blocks that are freed, but not durably yet: first those that the previous transaction freed,
    /// then those that the running one freed.
    limbo: [BTreeSet<u64>; 2],
}

impl Run<'_> {
    fn operate(&mut self, tx: &mut Transaction) {
        match self.rng.u32(0..10) {
            0..3 => self.claim(),
            3..5 if !self.claims.is_empty() => {
                let at = self.rng.usize(0..self.claims.len());
                let mut claim = self.claims.swap_remove(at);
                if claim.len() > 3 && self.rng.bool() {
                    self.claims.push(claim.split_front(2));
                }
                if self.rng.u32(0..4) > 0 {
                    let range = blocks_of(&claim);
                    self.f.groups.allocate(tx, claim);
                    self.model.blocks.extend(range);
                }
            }
            5..7 => self.free(tx),
            7..9 => {
                let kind = if self.rng.bool() { FileType::Directory } else { FileType::Regular };
                let Ok(claim) = self.f.claim_inode(kind, self.rng.u32(1..5000)) else { return };
                if self.rng.u32(0..3) > 0 {
                    let ino = claim.ino().0;
                    self.f.groups.allocate_inode(tx, claim, kind);
                    assert!(self.model.inodes.insert(ino, kind).is_none());
                }
            }
            _ => {
                let from = self.rng.u32(0..5000);
                let Some((&ino, &kind)) = self.model.inodes.range(from..).next() else { return };
                let place = self.f.geometry.inode_place(Ino(ino)).expect("a group");
                let _hold = self.f.groups.bitmaps.load(&self.f.device, place.group).expect("right");
                self.f.groups.free_inode(tx, Ino(ino), kind).expect("it is allocated");
                self.model.inodes.remove(&ino);
            }
        }
    }

    fn claim(&mut self) {
        let want = if self.rng.u32(0..20) == 0 { 5000 } else { self.rng.u32(1..60) };
        let Ok(claim) = self.f.claim(self.rng.u64(0..70_000), want) else { return };
        assert!(claim.len() <= want);
        for block in blocks_of(&claim) {
            assert!(!self.model.blocks.contains(&block), "block {block} is allocated");
            assert!(
                self.limbo.iter().all(|limbo| !limbo.contains(&block)),
                "block {block} is not durably free"
            );
            assert!(self.claims.iter().all(|other| !blocks_of(other).contains(&block)));
        }
        self.claims.push(claim);
    }

    /// Frees a run of allocated blocks.
    fn free(&mut self, tx: &mut Transaction) {
        let from = self.rng.u64(0..70_000);
        let Some(&start) = self.model.blocks.range(from..).next() else { return };
        let most = self.rng.u64(1..200);
        let len = (1..most).find(|i| !self.model.blocks.contains(&(start + i))).unwrap_or(most);
        let before: u32 = tx.released.iter().map(|(_, len)| len).sum();
        let group_of = |block| self.f.geometry.group_of(Block(block)).expect("a group").0;
        let load = |group| self.f.groups.bitmaps.load(&self.f.device, group).expect("right");
        let _holds = (group_of(start).0..=group_of(start + len - 1).0)
            .map(|g| load(Group(g)))
            .collect::<Vec<_>>();
        self.f.groups.free_blocks(tx, Block(start), len as u32).expect("they are allocated");
        let after: u32 = tx.released.iter().map(|(_, len)| len).sum();
        assert!(u64::from(after - before) <= len);
        for block in start..start + len {
            self.model.blocks.remove(&block);
        }
        self.limbo[1] = tx.released.iter().flat_map(|(s, l)| s.0..s.0 + u64::from(*l)).collect();
    }
}

fn blocks_of(claim: &Claim) -> std::ops::Range<u64> {
    claim.start().0..claim.start().0 + u64::from(claim.len())
}

#[test]
fn each_commit_writes_the_groups_as_its_transaction_left_them() {
    for options in [
        &["-b", "1024"][..],
        &["-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"],
        &["-b", "1024", "-O", "^metadata_csum,^uninit_bg,^64bit,^flex_bg"],
        &["-b", "4096"],
    ] {
        let Some(f) = Fixture::new(64, options) else { return };
        run_model(&f);
    }
}

#[test]
fn bitmaps_that_left_memory_come_back_as_they_were() {
    for options in ["^dir_nlink", "^metadata_csum,uninit_bg,^64bit", "^metadata_csum,^uninit_bg"] {
        let setup = Setup { bitmap_bytes: 0, ..setup(Arc::new(Scaling)) };
        let options = ["-b", "1024", "-g", "256", "-O", options];
        let Some(f) = Fixture::set_up(64, &options, setup) else { return };
        run_model(&f);
        assert!(f.geometry.group_count() > 200);
        // Now every group can be evicted: no block is claimed any more, and after three passes no
        // group has a second chance left.
        (0..3).for_each(|_| f.groups.bitmaps.committed(Tid(100)));
        let resident = f.groups.bitmaps.bytes() / f.groups.shared.bitmap_bytes();
        assert!(resident <= 16, "{resident} groups have their bitmaps in memory");
    }
}

/// Runs random operations in transactions. Each transaction is captured while the next one runs.
fn run_model(f: &Fixture) {
    let rng = seeded("each_commit");
    let mut run =
        Run { f, rng, model: Model::default(), claims: Vec::new(), limbo: Default::default() };
    let base = f.descriptors.clone();
    let mut previous: Option<(Transaction, Model)> = None;
    for number in 10..40 {
        let mut tx = Transaction::new(number);
        for step in 0..150 {
            run.operate(&mut tx);
            // The previous transaction is captured and made durable while this one runs.
            if step == 60
                && let Some((before, model)) = previous.take()
            {
                run.f.commit(before);
                run.limbo[0].clear();
                check(f, &base, &model);
            }
        }
        assert!(tx.charged <= 3 * tx.groups.len() as u32);
        previous = Some((tx, run.model.clone()));
        run.limbo[0] = std::mem::take(&mut run.limbo[1]);
    }
    let (last, model) = previous.expect("there were some");
    f.commit(last);
    check(f, &base, &model);
    check_with_e2fsck(f);
}

/// Checks that the device holds the state of the model.
fn check(f: &Fixture, base: &[GroupDesc], model: &Model) {
    let now = descriptors(&f.device, &f.geometry, f.checksums);
    let free = |descs: &[GroupDesc]| descs.iter().map(|d| u64::from(d.free_blocks)).sum::<u64>();
    assert_eq!(free(base) - free(&now), model.blocks.len() as u64);
    let inodes = |descs: &[GroupDesc]| descs.iter().map(|d| u64::from(d.free_inodes)).sum::<u64>();
    assert_eq!(inodes(base) - inodes(&now), model.inodes.len() as u64);
    let dirs = |descs: &[GroupDesc]| descs.iter().map(|d| u64::from(d.used_dirs)).sum::<u64>();
    let directories = model.inodes.values().filter(|kind| **kind == FileType::Directory).count();
    assert_eq!(dirs(&now) - dirs(base), directories as u64);
    assert_eq!(f.groups.captured_counts(), (free(&now), inodes(&now)));
    // All bitmaps are read again with all checks, to test that the counts are right and that no
    // block of the model can be claimed.
    let system = Arc::new(SystemBlocks::new(&f.geometry, &now, []));
    let again = Groups::new(f.geometry, f.checksums, now, system, setup(Arc::new(Scaling)));
    for group in 0..f.geometry.group_count() {
        let _hold = again.bitmaps.load(&f.device, Group(group)).expect("what was written is right");
    }
    for &block in model.blocks.iter().step_by(7) {
        let request = Request {
            goal: Block(block),
            want: 1,
            ahead: 0,
            at_least: 1,
            privilege: Privilege::Root,
            stream: None,
            owner: None,
        };
        let claim = again.claim(&f.device, &request).expect("there is room");
        assert!(!model.blocks.contains(&claim.start().0));
    }
}

/// Checks that e2fsck reports blocks and inodes without owners, and no other damage.
fn check_with_e2fsck(f: &Fixture) {
    let output = Command::new("e2fsck").args(["-fn", &f.device.path()]).output();
    let said = String::from_utf8_lossy(&output.expect("e2fsck runs").stdout).into_owned();
    let expected = |line: &str| {
        line.is_empty()
            || ["Pass ", "Block bitmap differences", "Inode bitmap differences", "Fix? no"]
                .iter()
                .any(|start| line.starts_with(start))
            || ["WARNING", "files (", "count wrong"].iter().any(|part| line.contains(part))
    };
    let wrong = said.lines().find(|line| !expected(line)).map(|line| &line[..line.len().min(200)]);
    assert_eq!(wrong, None);
    assert!(said.contains("Pass 5"));
}

#[test]
fn the_first_use_of_a_group_initialises_it() {
    use lanefs_ondisk::group_desc::GroupFlags;
    let Some(f) = Fixture::new(64, &["-b", "1024"]) else { return };
    let uninit = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
    let group = f.descriptors.iter().position(|desc| desc.flags.contains(uninit));
    let group = Group(group.expect("mke2fs leaves groups out") as u32);
    let parent = f.geometry.ino_at(group, 0).expect("a group");

    let claim = f.claim_inode(FileType::Regular, parent.0).expect("room");
    assert_eq!((claim.group(), claim.ino()), (group, parent));
    let mut tx = Transaction::new(9);
    f.groups.allocate_inode(&mut tx, claim, FileType::Regular);
    assert_eq!(tx.charged, 3, "both bitmaps and the descriptor");
    let image = f.groups.capture(tx.tid, group).expect("it changed");
    assert!(image.block_bitmap.is_some() && image.inode_bitmap.is_some());
    assert!((image.desc.flags & uninit).is_empty());
    assert_eq!(image.desc.itable_unused, f.geometry.inodes_per_group() - 1);
    assert!(f.groups.capture(tx.tid, group).is_none(), "once");
}

#[test]
fn a_block_of_descriptors_is_charged_once_a_transaction() {
    let Some(f) = Fixture::new(64, &["-b", "1024"]) else { return };
    let mut tx = Transaction::new(9);
    for group in 1..5 {
        let goal = f.geometry.group_first_block(Group(group)).expect("a group");
        let claim = f.claim(goal.0 + 500, 1).expect("room");
        f.groups.allocate(&mut tx, claim);
    }
    assert_eq!((tx.charged, tx.groups.len()), (4 + 1, 4));
}

// Measures the cost of an allocation with a hundred groups and with a million, most of them full.
//
// To print how many groups the claims tried:
// `cargo test --profile stress -p lanefs-ext4 --lib scale -- --include-ignored --nocapture`.
// To count the instructions of the second round, in which no bitmap is read, run one of these
// tests under `valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*claim_again*'`.

/// The number of claims that fit into a hundred groups.
const CLAIMS: u64 = 24;
/// The largest number of groups that one claim may try. A claim tries a few groups for each of a
/// few run lengths. The limit does not depend on the number of groups.
const MOST: u64 = 200;

/// Returns the free bits of a group.
type Free = fn(group: u32, groups: u32) -> Vec<Range<u32>>;

/// Nine of ten groups are full. Of the other groups, nine of ten have only single free blocks, and
/// the tenth also has a longer run.
fn little(group: u32, _groups: u32) -> Vec<Range<u32>> {
    let singles = (0..40).map(|n| 4000 + 100 * n..4001 + 100 * n);
    match group.wrapping_mul(2_654_435_761).rotate_left(16) % 100 {
        0..90 => Vec::new(),
        90..99 => singles.collect(),
        _ => singles.chain(std::iter::once(8000..8150)).collect(),
    }
}

/// All groups are full except the last one, which has free single blocks.
fn the_last(group: u32, groups: u32) -> Vec<Range<u32>> {
    let singles = (0..190).map(|n| 500 + 2 * n..501 + 2 * n);
    if group + 1 == groups { singles.collect() } else { Vec::new() }
}

/// A reader that computes the bitmaps with `free`, and counts how many were read.
struct Bitmaps {
    geometry: Geometry,
    free: Free,
    reads: AtomicU64,
}

impl BlockReader for Bitmaps {
    fn read_block(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (group, _) = self.geometry.group_of(block).expect("a bitmap");
        let mut bytes = vec![0xff; 1024];
        for bit in (self.free)(group.0, self.geometry.group_count()).into_iter().flatten() {
            bytes[bit as usize / 8] &= !(1 << (bit % 8));
        }
        Ok(bytes.into())
    }
}

/// Counts the searches for the next group to try.
#[derive(Debug, Default)]
struct Counting(Arc<AtomicU64>);

impl Allocation for Counting {
    fn next_with_order(&self, groups: &Summaries, order: u32, from: u32) -> Option<u32> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Scaling.next_with_order(groups, order, from)
    }
}

/// The number of groups that all claims together looked at, the largest number that a single claim
/// looked at, and the number of bitmaps that were read.
#[derive(Debug)]
struct Cost {
    looked: u64,
    most: u64,
    reads: u64,
}

/// Measures `claims` claims in `groups` groups. Each pair in `sizes` is the wanted length of a
/// claim and the shortest length that it accepts. The claims use the pairs in turn.
fn cost(groups: u32, free: Free, claims: u64, sizes: &[(u32, u32)]) -> Cost {
    let (mut fixture, geometry) = imagined_with(groups, &|group, desc| {
        desc.free_blocks = free(group, groups).iter().map(|run| run.end - run.start).sum();
        desc.flags = lanefs_ondisk::group_desc::GroupFlags::INODE_UNINIT;
    });
    let reader = Bitmaps { geometry, free, reads: AtomicU64::new(0) };
    let count = Arc::default();
    fixture.allocation = Arc::new(Counting(Arc::clone(&count)));
    let looked = || count.load(Ordering::Relaxed);
    let request = |n: u64| {
        let group = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % u64::from(groups);
        let (want, at_least) = sizes[n as usize % sizes.len()];
        let (goal, privilege) = (Block(group * 8192 + 1), Privilege::Ordinary);
        Request { goal, want, ahead: 0, at_least, privilege, stream: None, owner: None }
    };
    let mut held = Vec::new();
    let mut most = 0;
    for n in 0..claims {
        let before = looked();
        held.push(fixture.claim(&reader, &request(n)).expect("room"));
        most = most.max(looked() - before);
    }
    let cost = Cost { looked: looked(), most, reads: reader.reads.load(Ordering::Relaxed) };
    println!("{groups} groups, {claims} claims: {cost:?}");
    drop(held);
    let again: Vec<Claim> =
        (0..claims).map(|n| claim_again(&fixture, &reader, &request(n))).collect();
    println!("once more: {} looked for", looked() - cost.looked);
    drop(again);
    cost
}

#[inline(never)]
fn claim_again(groups: &Groups, reader: &Bitmaps, request: &Request) -> Claim {
    groups.claim(reader, request).expect("room")
}

const MIXED: [(u32, u32); 4] = [(1, 1), (4, 1), (16, 8), (40, 40)];

#[test]
fn scale_a_hundred_groups() {
    assert!(cost(100, little, CLAIMS, &MIXED).most <= MOST);
}

#[test]
fn scale_ten_thousand_groups() {
    assert!(cost(10_000, little, CLAIMS, &MIXED).most <= MOST);
}

#[test]
#[ignore = "long: a million groups take seconds to make up"]
fn scale_a_million_groups() {
    let many = cost(1_000_000, little, CLAIMS, &MIXED);
    let few = cost(10_000, little, CLAIMS, &MIXED);
    assert!(many.most <= MOST && many.looked <= 2 * few.looked && many.reads <= 2 * few.reads);
}

#[test]
fn scale_the_only_group_with_room_is_found_at_once() {
    assert!(cost(100_000, the_last, 10, &[(64, 64)]).most <= MOST);
}

// Many threads use the same groups: no block is given to two of them, and no block is lost.

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

fn blocks_of_file(claim: &Claim) -> std::ops::Range<u64> {
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
                        blocks.take(blocks_of_file(&claim));
                        claims.push(claim);
                    }
                    Err(Error::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            4..6 if !claims.is_empty() => {
                let claim = claims.swap_remove(rng.usize(0..claims.len()));
                blocks.give(blocks_of_file(&claim));
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
            claims.drain(..20).for_each(|claim| blocks.give(blocks_of_file(&claim)));
        }
    }
    claims.iter().for_each(|claim| blocks.give(blocks_of_file(claim)));
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
