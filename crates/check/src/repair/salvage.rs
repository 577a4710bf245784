//! Reads the valid part of a damaged mapping: leaves out invalid entries and keeps all others.

use super::mender::Mender;
use super::stage::Stage;
use crate::bytes::{le16, le32, part};
use crate::fault::Fault;
use crate::mapping::{self, Sink};
use crate::place::Place;
use crate::record::Record;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::extent::{self, END, Extent, State};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

pub const EXTENT_MAGIC: u16 = 0xf30a;
const HEADER: usize = 12;
const ENTRY: usize = 12;
/// The largest depth of a tree that is read. Valid trees have a depth of at most 5, but the leaves
/// of a deeper one may be valid.
const MOST_DEPTH: u16 = 32;
/// A stored length above this value marks an unwritten extent.
const MOST_WRITTEN: u32 = 0x8000;

/// The valid part of a mapping.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// The extents, in the order of the file and without overlaps.
    pub extents: Vec<Extent>,
    /// The mapping's nodes that lie in blocks that no other file uses. A new mapping can use these
    /// blocks again.
    pub nodes: Vec<Block>,
    /// Whether a node was read that has not the checksum of this file.
    pub is_doubtful: bool,
}

impl Sink for Salvaged {
    fn data(&mut self, extent: Extent) {
        push_run(&mut self.extents, extent);
    }

    fn meta(&mut self, block: Block) {
        self.nodes.push(block);
    }

    fn fault(&mut self, _place: Place, _fault: Fault) {}
}

impl Mender<'_> {
    /// Returns the valid part of the mapping of an inode that maps blocks, and claims its blocks.
    pub fn salvage(&self, ino: Ino, record: &Record) -> Salvaged {
        let mut salvaged = Salvaged::default();
        if record.flags.contains(InodeFlags::EXTENTS) {
            let seed = self.seed(ino, record);
            let end = record.size().div_ceil(self.run.volume.block_bytes() as u64);
            let walk = |depth: Option<u16>| {
                let mut out = Salvaged::default();
                let (seen, found) = (HashMap::new(), Vec::new());
                let mut walk = Walk { mender: self, seed, seen, found, out: &mut out };
                let depth = depth.unwrap_or_else(|| walk.root_depth(&record.block));
                walk.node(&record.block, depth, 0..END);
                in_order(&walk.found, end).into_iter().for_each(|extent| out.data(extent));
                out
            };
            salvaged = walk(None);
            if salvaged.extents.is_empty() {
                // The depth of the only child may be the wrong one.
                salvaged = walk(Some(le16(&record.block, 6).min(MOST_DEPTH)));
            }
        } else {
            mapping::walk(self.run.volume, ino, record, &mut salvaged);
        }
        let runs = salvaged.extents.iter().map(|extent| (extent.block, extent.len.into()));
        for (start, len) in runs.chain(salvaged.nodes.iter().map(|node| (*node, 1))) {
            self.run.claims.claim(self.run.clusters(start, len));
        }
        let (own, mut seen) = (self.checked_nodes(ino), HashSet::new());
        let seed = self.seed(ino, record).filter(|_| record.flags.contains(InodeFlags::EXTENTS));
        // The checksum of a node says to which file the node belongs.
        let is_sealed = |node: &Block| {
            let bytes = self.read_block(*node);
            seed.zip(bytes).is_some_and(|(seed, bytes)| extent::verify(&bytes, seed).is_ok())
        };
        let is_own =
            |node: &Block| (own.contains(node) || is_sealed(node)) && !self.is_shared(*node);
        salvaged.nodes.retain(|node| seen.insert(*node) && is_own(node));
        salvaged
    }

    /// Returns the nodes that the check has claimed for a file. Any other node that the salvage
    /// reaches may belong to another file.
    fn checked_nodes(&self, ino: Ino) -> HashSet<Block> {
        let mut walked = Salvaged::default();
        if let Some((_, record)) = self.read_inode(ino).filter(|(_, record)| record.maps_blocks()) {
            mapping::walk(self.run.volume, ino, &record, &mut walked);
        }
        walked.nodes.into_iter().collect()
    }

    /// Claims the blocks of all files with damaged mappings, because the check did not reach all of
    /// these blocks.
    pub fn claim_damaged(&self) {
        let damaged = self.findings.iter().filter(|f| Stage::of(f) == Some(Stage::Files));
        let inos: BTreeSet<Ino> = damaged.filter_map(|finding| finding.place.ino()).collect();
        for ino in inos {
            if let Some((_, record)) = self.read_inode(ino) {
                self.salvage(ino, &record);
            }
        }
    }

    /// Returns whether a finding says that `block` is used more than once.
    pub fn is_shared(&self, block: Block) -> bool {
        self.findings.iter().any(|finding| match finding.fault {
            Fault::DoublyClaimed { start, len } => self.blocks_of(start, len).contains(&block.0),
            _ => false,
        })
    }
}

struct Walk<'a> {
    mender: &'a Mender<'a>,
    /// The seed of the checksums of the file's nodes.
    seed: Option<Seed>,
    /// How often each node was read.
    seen: HashMap<Block, u32>,
    /// The valid extents, in the order of the tree.
    found: Vec<Extent>,
    out: &'a mut Salvaged,
}

impl Walk<'_> {
    /// Returns the depth of the root: the stored one if the depth of a child fits it, else that of
    /// the first child and one, because the root may be damaged.
    fn root_depth(&self, bytes: &[u8]) -> u16 {
        let stored = le16(bytes, 6);
        if stored == 0 {
            return 0;
        }
        let count = usize::from(le16(bytes, 2).min(extent::capacity(bytes.len())));
        let entries = (0..count.max(1)).filter_map(|n| part(bytes, HEADER + n * ENTRY, ENTRY));
        let mut depths = entries
            .filter_map(|entry| self.child(entry))
            .map(|(_, child)| le16(&child, 6).saturating_add(1));
        match depths.next() {
            Some(first) if first != stored && !depths.any(|depth| depth == stored) => {
                first.min(MOST_DEPTH)
            }
            _ => stored.min(MOST_DEPTH),
        }
    }

    /// Reads the child of an index entry; `None` if it is not a node.
    fn child(&self, entry: &[u8]) -> Option<(Block, Vec<u8>)> {
        let block = Block(u64::from(le16(entry, 8)) << 32 | u64::from(le32(entry, 4)));
        if !self.mender.run.volume.is_for_files(block) {
            return None;
        }
        let bytes = self.mender.read_block(block)?;
        // If several files refer to the node, it belongs to the file whose seed fits its checksum.
        let is_foreign = self.seed.is_some_and(|seed| extent::verify(&bytes, seed).is_err());
        if is_foreign && self.mender.is_shared(block) {
            return None;
        }
        (le16(&bytes, 0) == EXTENT_MAGIC).then_some((block, bytes))
    }

    fn node(&mut self, bytes: &[u8], depth: u16, range: Range<u32>) {
        if le16(bytes, 0) != EXTENT_MAGIC {
            return;
        }
        let count = le16(bytes, 2).min(extent::capacity(bytes.len()));
        let entries: Vec<&[u8]> = (0..usize::from(count))
            .filter_map(|n| part(bytes, HEADER + n * ENTRY, ENTRY))
            .collect();
        let Some(below) = depth.checked_sub(1) else {
            let extents = entries.iter().filter_map(|entry| self.extent(entry, &range));
            let extents: Vec<Extent> = extents.collect();
            return self.found.extend(extents);
        };
        // The start in an entry may be wrong, or the first one in its child: the later one is the
        // end of the entry before.
        let ends = entries.iter().skip(1).map(|entry| {
            let first = self.child(entry).map_or(0, |(_, child)| le32(&child, HEADER));
            le32(entry, 0).max(first)
        });
        let ends: Vec<u32> = ends.chain([END]).collect();
        for (entry, end) in entries.iter().zip(ends) {
            let end = if end > le32(entry, 0) { end } else { range.end };
            self.below(entry, below, range.start..end.min(range.end));
        }
    }

    fn below(&mut self, entry: &[u8], depth: u16, range: Range<u32>) {
        let Some((block, bytes)) = self.child(entry) else { return };
        // Many entries of a hostile tree could lead to the same node. But if a wrong entry leads to
        // it before the right one, it is read for both.
        let seen = self.seen.entry(block).or_default();
        *seen += 1;
        if range.is_empty() || *seen > 2 {
            return;
        }
        self.out.nodes.push(block);
        let is_doubtful = self.seed.is_some_and(|seed| extent::verify(&bytes, seed).is_err());
        self.out.is_doubtful |= is_doubtful;
        self.node(&bytes, depth, range);
    }

    /// Decodes an entry of a leaf; `None` if the file cannot have this extent.
    fn extent(&self, entry: &[u8], range: &Range<u32>) -> Option<Extent> {
        let raw = u32::from(le16(entry, 4));
        let (len, state) = match raw <= MOST_WRITTEN {
            true => (raw, State::Written),
            false => (raw - MOST_WRITTEN, State::Unwritten),
        };
        let start = le32(entry, 0);
        let block = Block(u64::from(le16(entry, 6)) << 32 | u64::from(le32(entry, 8)));
        let volume = self.mender.run.volume;
        let is_valid = len > 0
            && start >= range.start
            && start.checked_add(len).is_some_and(|end| end <= range.end)
            && volume.is_for_files(block)
            && volume.geometry.contains_run(block, len.into());
        is_valid.then_some(Extent { start: FileBlock(start), len, block, state })
    }
}

/// Returns as many extents as possible that follow one another without overlaps. So an extent whose
/// position or length is wrong does not cost those after it. `end_of_file` is its size in blocks.
fn in_order(extents: &[Extent], end_of_file: u64) -> Vec<Extent> {
    // For each number of extents, the last extents of the sequences with this number, in the order
    // of the tree: each ends earlier than the one before.
    let mut last: Vec<Vec<usize>> = Vec::new();
    let mut before = Vec::with_capacity(extents.len());
    let end = |n: &usize| extents.get(*n).map_or(END, Extent::end);
    for (n, extent) in extents.iter().enumerate() {
        let start = extent.start.0;
        let count = last.partition_point(|some| some.last().is_some_and(|n| end(n) <= start));
        // Of two sequences, the one that e2fsck keeps.
        let first = |some: &Vec<usize>| some.get(some.partition_point(|n| end(n) > start)).copied();
        before.push(count.checked_sub(1).and_then(|at| last.get(at)).and_then(first));
        match last.get_mut(count) {
            Some(some) if some.last().is_some_and(|n| end(n) > extent.end()) => some.push(n),
            Some(_) => {}
            None => last.push(vec![n]),
        }
    }
    let sequence = |end: &usize| {
        let chosen = std::iter::successors(Some(*end), |n| before.get(*n).copied().flatten());
        let mut chosen: Vec<usize> = chosen.collect();
        chosen.reverse();
        filled(extents, &chosen)
    };
    let ends = last.last().into_iter().flat_map(|some| [some.last(), some.first()]).flatten();
    let is_within = |extent: &&Extent| u64::from(extent.end()) <= end_of_file;
    let within = |all: &[Extent]| all.iter().filter(is_within).count();
    ends.map(sequence).max_by_key(|all| (all.len(), within(all))).unwrap_or_default()
}

/// Returns the chosen extents, and what fits between them of the others: a part of an extent that
/// is too long, or a whole one at a wrong position.
fn filled(extents: &[Extent], chosen: &[usize]) -> Vec<Extent> {
    let blocks = chosen.iter().filter_map(|n| extents.get(*n)).map(|extent| extent.block);
    let used: HashSet<Block> = blocks.collect();
    let mut kept: Vec<Extent> = Vec::new();
    let mut from = 0;
    for n in chosen.iter().copied().chain([extents.len()]) {
        let next = extents.get(n);
        let others = extents.get(from..n).unwrap_or_default();
        // A node that was read twice has each of its extents twice.
        for other in others.iter().filter(|other| !used.contains(&other.block)) {
            let hole = kept.last().map_or(0, Extent::end)..next.map_or(END, |next| next.start.0);
            let moved = Extent { start: FileBlock(hole.start), ..*other };
            let is_exact = next.is_some() && others.len() == 1 && moved.end() == hole.end;
            kept.extend(other.clip(&hole).or(is_exact.then_some(moved)));
        }
        kept.extend(next);
        from = n + 1;
    }
    kept
}

/// Adds an extent; merges it into the last one if the format allows that.
pub fn push_run(extents: &mut Vec<Extent>, new: Extent) {
    if let Some(last) = extents.last_mut()
        && last.continued_by(&new)
        && last.len + new.len <= State::Unwritten.max_len()
    {
        last.len += new.len;
        return;
    }
    extents.push(new);
}
