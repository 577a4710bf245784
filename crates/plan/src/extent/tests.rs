//! Applies plans to a tree in memory, and compares the result with a plain table of the expected
//! mappings.

mod hostile;
mod kernel;
mod model;

use crate::Error;
use crate::extent::*;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, BlockSize, FileBlock, Ino};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// A file whose nodes are in memory.
struct Tree {
    root: [u8; ROOT_BYTES],
    blocks: HashMap<Block, Arc<[u8]>>,
    limits: Limits,
    next: u64,
    reads: Cell<usize>,
}

impl Nodes for Tree {
    fn node(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        self.reads.set(self.reads.get() + 1);
        Ok(self.blocks.get(&block).cloned().unwrap_or_else(|| Arc::from(vec![0; 1024])))
    }
}

impl Tree {
    fn new(node_max: u16) -> Tree {
        let block_size = BlockSize::new(1024).expect("a block size");
        let limits = Limits { node_max, ..Limits::new(Ino(12), block_size, 2..1 << 40) };
        let blocks = HashMap::new();
        Tree { root: EMPTY_ROOT, blocks, limits, next: 1 << 30, reads: Cell::new(0) }
    }

    fn depth(&self) -> u16 {
        u16::from_le_bytes([self.root[6], self.root[7]])
    }

    fn load(&self) -> Map {
        load(&self.root, self, &self.limits).expect("the tree is right")
    }

    /// Replaces a range in as many plans as are needed, and returns the number of plans.
    fn replace(&mut self, range: Range<u32>, with: &[Extent]) -> usize {
        if range.is_empty() {
            let plan = plan_replace(&self.root, self, &self.limits, range.clone(), with)
                .expect("the tree is right");
            assert_eq!((plan.covered(), plan.nodes_needed(), plan.freed().len()), (range, 0, 0));
            self.apply(plan);
            return 1;
        }
        let (mut left, mut plans) = (range, 0);
        while !left.is_empty() {
            let part: Vec<Extent> = with.iter().filter_map(|extent| extent.clip(&left)).collect();
            let plan = plan_replace(&self.root, self, &self.limits, left.clone(), &part)
                .expect("the tree is right");
            let cost = worst_case(self.depth());
            assert!(plan.nodes_needed() <= cost.new, "{cost:?} of depth {}", self.depth());
            assert!(plan.nodes_written() <= cost.written && plan.freed().len() <= cost.freed);
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
}

fn extent(start: u32, len: u32, block: u64, state: State) -> Extent {
    Extent { start: FileBlock(start), len, block: Block(block), state }
}

/// Maps a logical block to its physical block and state.
type Table = BTreeMap<u32, (u64, State)>;

fn replace_in(table: &mut Table, range: Range<u32>, with: &[Extent]) {
    table.retain(|at, _| !range.contains(at));
    for extent in with {
        for i in 0..extent.len {
            table.insert(extent.start.0 + i, (extent.block.0 + u64::from(i), extent.state));
        }
    }
}

fn table_of(extents: impl IntoIterator<Item = Extent>) -> Table {
    let mut table = Table::new();
    let mut end = 0;
    for extent in extents {
        assert!(extent.start.0 >= end, "{extent:?} overlaps what is before");
        end = extent.end();
        for i in 0..extent.len {
            table.insert(extent.start.0 + i, (extent.block.0 + u64::from(i), extent.state));
        }
    }
    table
}

/// Returns random numbers; the seed is printed, and `LANEFS_SEED` sets it.
fn seeded(name: &str) -> fastrand::Rng {
    let given = std::env::var("LANEFS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("{name}: LANEFS_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
