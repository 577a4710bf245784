//! Measures the cost of an allocation with a hundred groups and with a million, most of them full.
//!
//! To print how many groups the claims tried:
//! `cargo test --profile stress -p lanefs-ext4 --lib scale -- --include-ignored --nocapture`.
//! To count the instructions of the second round, in which no bitmap is read, run one of these
//! tests under `valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*claim_again*'`.

use super::decisions::{Allocation, Scaling};
use super::placement::imagined_with;
use super::summary::Summaries;
use super::*;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;

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
