//! Applies plans to a block map in memory, and compares the result with a plain table of the
//! expected mappings.

use crate::Error;
use crate::block_map::{MOST_NODES, *};
use crate::extent::{Limits, Map, Nodes};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::block_map::{Cause, mappable};
use lanefs_ondisk::extent::{END, Extent, ROOT_BYTES, State};
use lanefs_ondisk::{Block, BlockSize, Corruption, FileBlock, Ino};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The first file block below the double indirect block, and the first one below the triple
/// indirect block, with blocks of 1 KiB.
const DOUBLE: u32 = 12 + 256;
const TRIPLE: u32 = DOUBLE + 65536;

/// A file whose nodes are in memory.
struct File {
    root: [u8; ROOT_BYTES],
    blocks: HashMap<Block, Arc<[u8]>>,
    limits: Limits,
    next: u64,
}

impl Nodes for File {
    fn node(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        Ok(self.blocks.get(&block).cloned().unwrap_or_else(|| Arc::from(vec![0; 1024])))
    }
}

impl File {
    fn new() -> File {
        let block_size = BlockSize::new(1024).expect("a block size");
        let limits = Limits::new(Ino(12), block_size, 2..1 << 32);
        File { root: [0; ROOT_BYTES], blocks: HashMap::new(), limits, next: 1 << 30 }
    }

    fn load(&self) -> Map {
        load(&self.root, self, &self.limits).expect("the map is right")
    }

    /// Replaces a range in as many plans as are needed, and returns the number of plans.
    fn replace(&mut self, range: Range<u32>, with: &[Extent]) -> usize {
        if range.is_empty() {
            let plan = plan_replace(&self.root, self, &self.limits, range.clone(), with)
                .expect("the map is right");
            assert_eq!((plan.covered(), plan.nodes_needed(), plan.freed().len()), (range, 0, 0));
            self.apply(plan);
            return 1;
        }
        let (mut left, mut plans) = (range, 0);
        while !left.is_empty() {
            let part: Vec<Extent> = with.iter().filter_map(|extent| extent.clip(&left)).collect();
            let plan = plan_replace(&self.root, self, &self.limits, left.clone(), &part)
                .expect("the map is right");
            let nodes = plan.nodes_written() + plan.freed().len();
            assert!(nodes <= usize::from(MOST_NODES) && plan.nodes_needed() <= nodes);
            let covered = plan.covered();
            assert!(covered.start == left.start && covered.end > left.start);
            assert!(covered.end <= left.end);
            left.start = covered.end;
            self.apply(plan);
            plans += 1;
        }
        plans
    }

    fn apply(&mut self, plan: Plan) {
        let new: Vec<Block> =
            (0..plan.nodes_needed() as u64).map(|i| Block(self.next + i)).collect();
        self.next += new.len() as u64;
        let placed = plan.place(&new);
        self.root = placed.root;
        for (block, bytes) in placed.writes {
            assert!(self.blocks.insert(block, bytes).is_some() || new.contains(&block));
        }
        for block in placed.freed {
            assert!(self.blocks.remove(&block).is_some(), "{block} freed twice");
        }
    }

    fn write(&mut self, at: u32, len: u32) -> usize {
        self.replace(at..at + len, &[extent(at, len, 100 + u64::from(at))])
    }

    /// Stores pointers in the indirect block `block`.
    fn put_node(&mut self, block: u32, pointers: &[(usize, u32)]) {
        let mut bytes = vec![0; 1024];
        for (at, pointer) in pointers {
            bytes[at * 4..][..4].copy_from_slice(&pointer.to_le_bytes());
        }
        self.blocks.insert(Block(block.into()), bytes.into());
    }

    fn point(&mut self, index: usize, block: u32) {
        self.root[index * 4..][..4].copy_from_slice(&block.to_le_bytes());
    }
}

fn extent(start: u32, len: u32, block: u64) -> Extent {
    Extent { start: FileBlock(start), len, block: Block(block), state: State::Written }
}

fn table_of(map: &Map) -> BTreeMap<u32, u64> {
    map.iter()
        .flat_map(|e| (0..e.len).map(move |i| (e.start.0 + i, e.block.0 + u64::from(i))))
        .collect()
}

/// Returns a range near one of the file blocks at which the depth of the map changes, or the empty
/// range after the last file block.
fn random_range(rng: &mut fastrand::Rng) -> Range<u32> {
    let near = [0, 12, DOUBLE, DOUBLE + 256, TRIPLE, TRIPLE + 256, TRIPLE + 65536];
    let start = near[rng.usize(..near.len())].saturating_sub(rng.u32(..20)) + rng.u32(..30);
    let most = if rng.u32(0..8) == 0 { 70_000 } else { 40 };
    if rng.u32(0..20) == 0 { END..END } else { start..start + rng.u32(0..most) }
}

/// Returns a few ascending extents in `range`, some adjacent, some with holes between them.
fn random_extents(rng: &mut fastrand::Rng, range: &Range<u32>) -> Vec<Extent> {
    let (mut with, mut at) = (Vec::new(), range.start);
    for _ in 0..rng.usize(0..10) {
        at = at.saturating_add(if rng.bool() { 0 } else { rng.u32(0..4) });
        if at >= range.end {
            break;
        }
        let len = rng.u32(1..=(range.end - at).min(9));
        with.push(extent(at, len, rng.u64(2..1 << 29)));
        at += len;
    }
    with
}

#[test]
fn random_replacements_leave_what_a_table_leaves() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut file, mut table) = (File::new(), BTreeMap::new());
    for round in 0..800 {
        let range = random_range(&mut rng);
        let shrinks = (round / 100) % 2 == 1 && rng.u32(0..4) > 0;
        let with = if shrinks { Vec::new() } else { random_extents(&mut rng, &range) };
        file.replace(range.clone(), &with);
        table.retain(|at, _| !range.contains(at));
        for extent in &with {
            table.extend(
                (0..extent.len).map(|i| (extent.start.0 + i, extent.block.0 + u64::from(i))),
            );
        }
        let loaded = file.load();
        assert_eq!(table_of(&loaded), table, "after round {round}");
    }
    file.replace(0..END, &[]);
    assert_eq!((file.root, file.blocks.len()), ([0; ROOT_BYTES], 0), "every node was freed");
}

#[test]
fn a_block_of_each_depth_needs_the_nodes_of_its_path() {
    let nodes_after = |at| {
        let mut file = File::new();
        assert_eq!(file.write(at, 1), 1, "one plan");
        file.blocks.len()
    };
    let firsts = [0, 11, 12, DOUBLE, TRIPLE].map(nodes_after);
    assert_eq!(firsts, [0, 0, 1, 2, 3]);
}

#[test]
fn a_small_file_is_mapped_and_unmapped_by_one_plan() {
    let mut file = File::new();
    assert_eq!(file.write(0, 600), 1);
    assert_eq!(file.load().count(), 1);
    assert_eq!(file.replace(0..END, &[]), 1);
}

#[test]
fn contiguous_blocks_of_several_nodes_are_one_extent_up_to_the_longest() {
    let mut file = File::new();
    file.write(0, 40_000);
    let lens: Vec<u32> = file.load().iter().map(|extent| extent.len).collect();
    assert_eq!(lens, [32768, 7232]);
}

#[test]
fn empty_nodes_are_freed_with_the_range_around_them() {
    let mut file = File::new();
    file.point(13, 50);
    file.put_node(50, &[(3, 51)]);
    file.put_node(51, &[]);
    assert_eq!(file.load().count(), 0);
    assert_eq!(file.replace(5..END, &[]), 1);
    assert_eq!((file.root, file.blocks.len()), ([0; ROOT_BYTES], 0));
}

#[test]
fn a_hole_of_any_size_is_passed_by_one_plan() {
    let mut file = File::new();
    file.write(0, 1);
    file.write(TRIPLE + 100_000, 1);
    assert_eq!(file.replace(1..TRIPLE + 100_000, &[]), 1);
    assert_eq!(file.load().count(), 2);
}

#[test]
fn the_last_block_can_be_mapped_and_no_block_after_it() {
    let mut file = File::new();
    let end = mappable(file.limits.block_size) as u32;
    file.write(end - 1, 1);
    assert_eq!(file.load().last().map(|last| last.end()), Some(end));
    let with = [extent(end, 1, 100)];
    let plan = plan_replace(&file.root, &file, &file.limits, end..end + 1, &with);
    assert!(matches!(plan, Err(Error::FileTooLarge)), "{plan:?}");
}

fn cause_of(file: &File) -> (Option<Block>, Cause) {
    match load(&file.root, file, &file.limits) {
        Err(Error::Corruption(Corruption::BlockMap { ino: Ino(12), block, cause })) => {
            (block, cause)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_that_the_map_refers_to_twice_is_corruption() {
    let twice = |block| (Some(Block(block)), Cause::Twice { block: Block(block) });
    let mut file = File::new();
    // All pointers of a node refer to the same next node. A walk that did not recognise a node that
    // it has visited before would make 2^24 visits.
    file.point(14, 50);
    for (block, next) in [(50, 51), (51, 52), (52, 53)] {
        let all: Vec<(usize, u32)> = (0..256).map(|at| (at, next)).collect();
        file.put_node(block, &all);
    }
    assert_eq!(cause_of(&file), twice(52));
    // A node that refers to itself.
    file.put_node(50, &[(7, 50)]);
    assert_eq!(cause_of(&file), twice(50));
    // A node to which two trees refer.
    file.put_node(50, &[(7, 52)]);
    file.put_node(52, &[]);
    file.point(12, 52);
    assert_eq!(cause_of(&file), twice(52));
}

#[test]
fn pointers_to_places_outside_are_corruption_of_the_node() {
    let mut file = File::new();
    let target = |start, block| Cause::Target { start: FileBlock(start), block: Block(block) };
    file.point(2, 1);
    assert_eq!(cause_of(&file), (None, target(2, 1)));
    file.point(2, 0);
    file.point(13, 50);
    file.put_node(50, &[(3, 51)]);
    file.put_node(51, &[(9, 1)]);
    assert_eq!(cause_of(&file), (Some(Block(51)), target(DOUBLE + 3 * 256 + 9, 1)));
}
