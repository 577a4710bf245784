//! All mappings of one file in memory.

use super::splice::{assert_within, is_data, splice};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::extent::{END, Extent, State};
use lanefs_ondisk::{Block, FileBlock};
use std::borrow::Cow;
use std::ops::Range;
use std::slice;

/// Extents in a leaf, and children of an inner node: what a change copies on each level.
const LEAF: usize = 64;
const FAN: usize = 32;

/// Bytes of a node beside its entries: reference counts, and as much as the allocator adds.
const NODE: u64 = 32;

/// All mappings of one file: an immutable snapshot. [`Map::replace`] gives another that shares all
/// but one path with it, so that a change costs the same for long and short files, and readers of
/// the old one (under an epoch pin) are not disturbed.
///
/// *Invariants*: extents ascend without overlap; no node is empty; leaves are all equally deep.
#[derive(Debug, Clone)]
pub struct Map {
    /// Levels below `top`: leaves at 0.
    height: u32,
    top: Arc<[Child]>,
}

/// A node and what a walk wants to know without following it.
#[derive(Debug, Clone)]
struct Child {
    /// The first logical block.
    from: u32,
    /// Extents below.
    count: u64,
    /// Physical blocks below.
    blocks: u64,
    /// Bytes of memory that the node takes, and those below it.
    bytes: u64,
    node: Node,
}

#[derive(Debug, Clone)]
enum Node {
    Leaf(Arc<[Extent]>),
    Inner(Arc<[Child]>),
}

/// How what overflows a node is spread.
#[derive(Debug, Clone, Copy)]
enum Fill {
    /// Evenly: more may come anywhere.
    Even,
    /// All full but the last: more comes at the end.
    Full,
}

/// What a logical block leads to, and for how many blocks that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Blocks from `block`; `len` of them with the asked one.
    Mapped {
        /// The physical block of the asked one.
        block: Block,
        /// Blocks to the end of the extent.
        len: u32,
        /// Whether there is data.
        state: State,
    },
    /// No blocks.
    Hole {
        /// Blocks to the next extent, or to [`END`].
        len: u32,
    },
}

impl Map {
    /// No mappings.
    pub fn empty() -> Map {
        Map { height: 0, top: Arc::from([]) }
    }

    /// The mapping of one logical block; [`END`] itself is a hole of length 0.
    pub fn find(&self, at: FileBlock) -> Mapping {
        let mut next = END;
        let mut children: &[Child] = &self.top;
        loop {
            let after = children.partition_point(|child| child.from <= at.0);
            next = children.get(after).map_or(next, |child| child.from);
            let Some(child) = after.checked_sub(1).and_then(|i| children.get(i)) else {
                return Mapping::Hole { len: next.saturating_sub(at.0) };
            };
            match &child.node {
                Node::Inner(below) => children = below,
                Node::Leaf(extents) => return find_in(extents, at, next),
            }
        }
    }

    /// The map with what is in `range` replaced by `with`: ascending extents in `range`, of any
    /// length. Neighbours that go on in each other become one extent where the format allows it.
    pub fn replace(&self, range: Range<u32>, with: &[Extent]) -> Map {
        assert_within(&range, with);
        let appends = self.last().is_none_or(|last| range.start >= last.end());
        let change = Change { range, with, fill: if appends { Fill::Full } else { Fill::Even } };
        Map::over(change.apply(&self.top, self.height), self.height, change.fill)
    }

    /// Extents from the one that holds `from` or follows it, whole.
    pub fn iter_from(&self, from: FileBlock) -> Iter<'_> {
        let mut iter = Iter { rows: Vec::new(), leaf: [].iter() };
        let mut children: &[Child] = &self.top;
        loop {
            // The last child that starts at `from` or before may hold it.
            let first = children.partition_point(|child| child.from <= from.0).saturating_sub(1);
            let mut row = children[first.min(children.len())..].iter();
            let child = row.next();
            iter.rows.push(row);
            match child.map(|child| &child.node) {
                None => return iter,
                Some(Node::Inner(below)) => children = below,
                Some(Node::Leaf(extents)) => {
                    let first = extents.partition_point(|extent| extent.end() <= from.0);
                    iter.leaf = extents[first..].iter();
                    return iter;
                }
            }
        }
    }

    /// All extents.
    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(FileBlock(0))
    }

    /// The last extent.
    pub fn last(&self) -> Option<Extent> {
        let mut child = self.top.last()?;
        loop {
            match &child.node {
                Node::Inner(below) => child = below.last()?,
                Node::Leaf(extents) => return extents.last().copied(),
            }
        }
    }

    /// How many extents there are.
    pub fn count(&self) -> u64 {
        self.top.iter().map(|child| child.count).sum()
    }

    /// How many physical blocks are mapped, unwritten ones too; nodes of the tree are not counted.
    pub fn blocks(&self) -> u64 {
        self.top.iter().map(|child| child.blocks).sum()
    }

    /// Bytes of memory that it takes; nodes that it shares with other maps count in each.
    pub fn bytes(&self) -> u64 {
        bytes_of(&self.top)
    }

    /// The first block with data at `from` or later. Unwritten blocks are no data.
    pub fn seek_data(&self, from: FileBlock) -> Option<FileBlock> {
        self.iter_from(from).find(is_data).map(|extent| extent.start.max(from))
    }

    /// The first block without data at `from` or later: there is always one, [`END`] at the last.
    /// Unwritten blocks are a hole here, as the kernel says too when none of them is dirty.
    pub fn seek_hole(&self, from: FileBlock) -> FileBlock {
        let mut at = from;
        for extent in self.iter_from(from) {
            if extent.start > at || !is_data(&extent) {
                break;
            }
            at = FileBlock(extent.end());
        }
        at
    }

    /// A map over `children` of one height, with as many levels as are needed.
    fn over(mut children: Vec<Child>, mut height: u32, fill: Fill) -> Map {
        while children.len() > FAN {
            children = group(&children, fill);
            height += 1;
        }
        loop {
            match children.as_slice() {
                [] => return Map::empty(),
                [Child { node: Node::Inner(below), .. }] => {
                    children = below.to_vec();
                    height -= 1;
                }
                _ => return Map { height, top: children.into() },
            }
        }
    }
}

fn find_in(extents: &[Extent], at: FileBlock, next: u32) -> Mapping {
    let i = extents.partition_point(|extent| extent.end() <= at.0);
    match extents.get(i) {
        Some(extent) if extent.start <= at => {
            let skipped = at.0 - extent.start.0;
            Mapping::Mapped {
                block: Block(extent.block.0 + u64::from(skipped)),
                len: extent.len - skipped,
                state: extent.state,
            }
        }
        Some(extent) => Mapping::Hole { len: extent.start.0 - at.0 },
        None => Mapping::Hole { len: next.saturating_sub(at.0) },
    }
}

/// A replacement on its way down.
struct Change<'a> {
    range: Range<u32>,
    with: &'a [Extent],
    fill: Fill,
}

impl Change<'_> {
    /// `children`, `height` levels above the leaves, after the change. Of those that the range
    /// touches, neighbours at its ends included, the first and the last become one list, for what
    /// is between them goes: so the ends meet in one leaf, where they can become one extent.
    fn apply(&self, children: &[Child], height: u32) -> Vec<Child> {
        let first = children.partition_point(|c| c.from < self.range.start).saturating_sub(1);
        let end = children.partition_point(|c| c.from <= self.range.end).max(first);
        let touched = &children[first..end];
        let new = match height {
            0 => leaves(&self.splice(touched), self.fill),
            _ => group(&self.apply(&ends(touched, Child::children), height - 1), self.fill),
        };
        if touched.len() == children.len() {
            return new;
        }
        [&children[..first], &new, &children[end..]].concat()
    }

    /// The extents of the leaves at both ends after the change.
    fn splice(&self, touched: &[Child]) -> Vec<Extent> {
        splice(&ends(touched, Child::extents), &self.range, self.with)
    }
}

/// What the first and the last of `touched` have, as one list: nothing is copied if they are one.
fn ends<T: Clone>(touched: &[Child], of: fn(&Child) -> &[T]) -> Cow<'_, [T]> {
    match touched {
        [] => Cow::Borrowed(&[]),
        [only] => Cow::Borrowed(of(only)),
        [first, .., last] => Cow::Owned([of(first), of(last)].concat()),
    }
}

impl Child {
    fn leaf(extents: &[Extent]) -> Child {
        Child {
            from: extents.first().map_or(0, |extent| extent.start.0),
            count: extents.len() as u64,
            blocks: extents.iter().map(|extent| u64::from(extent.len)).sum(),
            bytes: NODE + size_of_val(extents) as u64,
            node: Node::Leaf(extents.into()),
        }
    }

    fn inner(children: &[Child]) -> Child {
        Child {
            from: children.first().map_or(0, |child| child.from),
            count: children.iter().map(|child| child.count).sum(),
            blocks: children.iter().map(|child| child.blocks).sum(),
            bytes: bytes_of(children),
            node: Node::Inner(children.into()),
        }
    }

    fn extents(&self) -> &[Extent] {
        match &self.node {
            Node::Leaf(extents) => extents,
            Node::Inner(_) => &[],
        }
    }

    fn children(&self) -> &[Child] {
        match &self.node {
            Node::Leaf(_) => &[],
            Node::Inner(children) => children,
        }
    }
}

/// Bytes of a node with these children, and of all below.
fn bytes_of(children: &[Child]) -> u64 {
    let below: u64 = children.iter().map(|child| child.bytes).sum();
    NODE + size_of_val(children) as u64 + below
}

fn leaves(extents: &[Extent], fill: Fill) -> Vec<Child> {
    chunks(extents, LEAF, fill).map(Child::leaf).collect()
}

fn group(children: &[Child], fill: Fill) -> Vec<Child> {
    chunks(children, FAN, fill).map(Child::inner).collect()
}

/// `list` in chunks of at most `most`.
fn chunks<T>(list: &[T], most: usize, fill: Fill) -> slice::Chunks<'_, T> {
    let size = match fill {
        Fill::Full => most,
        Fill::Even => list.len().div_ceil(list.len().div_ceil(most).max(1)).max(1),
    };
    list.chunks(size)
}

/// Extents in ascending order.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    /// What is left on each level, the top first.
    rows: Vec<slice::Iter<'a, Child>>,
    leaf: slice::Iter<'a, Extent>,
}

impl Iterator for Iter<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        loop {
            if let Some(extent) = self.leaf.next() {
                return Some(*extent);
            }
            let row = self.rows.last_mut()?;
            match row.next().map(|child| &child.node) {
                None => drop(self.rows.pop()),
                Some(Node::Inner(below)) => self.rows.push(below.iter()),
                Some(Node::Leaf(extents)) => self.leaf = extents.iter(),
            }
        }
    }
}

/// Makes a map of extents that come in ascending order without overlap, and keeps them one to one.
#[derive(Debug, Default)]
pub(super) struct Builder {
    leaves: Vec<Child>,
    leaf: Vec<Extent>,
}

impl Builder {
    /// Adds what follows all that came before.
    pub(super) fn push(&mut self, extent: Extent) {
        self.leaf.push(extent);
        if self.leaf.len() == LEAF {
            self.close_leaf();
        }
    }

    /// The map of all that was pushed.
    pub(super) fn finish(mut self) -> Map {
        if !self.leaf.is_empty() {
            self.close_leaf();
        }
        Map::over(self.leaves, 0, Fill::Full)
    }

    fn close_leaf(&mut self) {
        self.leaves.push(Child::leaf(&self.leaf));
        self.leaf.clear();
    }
}

/// What `map` has in `range`, cut at its ends: what a replacement of `range` takes away.
pub fn overlapping(map: &Map, range: Range<u32>) -> Vec<Extent> {
    map.iter_from(FileBlock(range.start))
        .take_while(|extent| extent.start.0 < range.end)
        .filter_map(|extent| extent.clip(&range))
        .collect()
}
