//! The mappings of one file in memory.

use lanefs_lanes::sync::Arc;
use lanefs_ondisk::extent::{END, Extent, State};
use lanefs_ondisk::{Block, FileBlock};
use std::borrow::Cow;
use std::ops::Range;
use std::{mem, slice};

/// The largest number of extents in a leaf, and of children in an inner node. A change copies one
/// node on each level.
const LEAF: usize = 64;
const FAN: usize = 32;

/// Size in bytes of a node without its entries: reference counts and the allocator's overhead.
const NODE: u64 = 32;

/// All mappings of one file: an immutable snapshot. [`Map::replace`] returns another map. The two
/// maps share all nodes except those on one path from the top. So the cost of a change does not
/// depend on the file's length, and readers of the old map (under an epoch pin) are not disturbed.
///
/// *Invariants*: extents ascend without overlap; no node is empty; leaves are all equally deep.
#[derive(Debug, Clone)]
pub struct Map {
    /// Number of levels below `top`: 0 if the nodes in `top` are leaves.
    height: u32,
    top: Arc<[Child]>,
}

/// A node, and the data that a walk needs before it visits the node.
#[derive(Debug, Clone)]
struct Child {
    /// The first logical block.
    from: u32,
    /// Number of extents in the node and below it.
    count: u64,
    /// Number of physical blocks mapped by these extents.
    blocks: u64,
    /// Memory size in bytes of the node and of all nodes below it.
    bytes: u64,
    node: Node,
}

#[derive(Debug, Clone)]
enum Node {
    Leaf(Arc<[Extent]>),
    Inner(Arc<[Child]>),
}

/// How the entries of an overflowing node are distributed.
#[derive(Debug, Clone, Copy)]
enum Fill {
    /// Evenly, because further entries may be added anywhere.
    Even,
    /// All nodes are full except the last, because further entries are added at the end.
    Full,
}

/// The mapping of a logical block, and the number of blocks for which it continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// The block is mapped.
    Mapped {
        /// The physical block.
        block: Block,
        /// The number of blocks from the requested one to the end of the extent.
        len: u32,
        /// Whether the blocks contain data.
        state: State,
    },
    /// The block is not mapped.
    Hole {
        /// The number of blocks up to the next extent, or up to [`END`].
        len: u32,
    },
}

impl lanefs_lanes::Replaced for Map {
    fn heap_bytes(&self) -> usize {
        // Only the top is counted, because the map that replaces this one shares nearly all nodes
        // below the top.
        size_of_val(&*self.top)
    }
}

impl Map {
    /// Creates a map without mappings.
    pub fn empty() -> Map {
        Map { height: 0, top: Arc::from([]) }
    }

    /// Returns the mapping of one logical block; [`END`] itself is a hole of length 0.
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

    /// Returns the map with the mappings in `range` replaced by the extents `with`. These extents
    /// ascend, lie in `range`, and may have any length. Adjacent extents that continue each other
    /// are merged where the format allows it.
    pub fn replace(&self, range: Range<u32>, with: &[Extent]) -> Map {
        assert_within(&range, with);
        let appends = self.last().is_none_or(|last| range.start >= last.end());
        let change = Change { range, with, fill: if appends { Fill::Full } else { Fill::Even } };
        Map::over(change.apply(&self.top, self.height), self.height, change.fill)
    }

    /// Returns all extents that end after `from`, in order. The first extent is not cut at `from`.
    pub fn iter_from(&self, from: FileBlock) -> Iter<'_> {
        let mut iter = Iter { above: Vec::new(), row: [].iter(), leaf: [].iter() };
        let mut children: &[Child] = &self.top;
        loop {
            // The last child that starts at or before `from` may contain `from`.
            let first = children.partition_point(|child| child.from <= from.0).saturating_sub(1);
            let mut row = children[first.min(children.len())..].iter();
            match row.next().map(|child| &child.node) {
                None => return iter,
                Some(Node::Inner(below)) => {
                    iter.above.push(row);
                    children = below;
                }
                Some(Node::Leaf(extents)) => {
                    let first = extents.partition_point(|extent| extent.end() <= from.0);
                    (iter.row, iter.leaf) = (row, extents[first..].iter());
                    return iter;
                }
            }
        }
    }

    /// Returns all extents.
    pub fn iter(&self) -> Iter<'_> {
        self.iter_from(FileBlock(0))
    }

    /// Returns the last extent.
    pub fn last(&self) -> Option<Extent> {
        let mut child = self.top.last()?;
        loop {
            match &child.node {
                Node::Inner(below) => child = below.last()?,
                Node::Leaf(extents) => return extents.last().copied(),
            }
        }
    }

    /// Returns the number of extents.
    pub fn count(&self) -> u64 {
        self.top.iter().map(|child| child.count).sum()
    }

    /// Returns the number of mapped physical blocks, unwritten ones included; nodes of the tree are
    /// not counted.
    pub fn blocks(&self) -> u64 {
        self.top.iter().map(|child| child.blocks).sum()
    }

    /// Returns the memory size of the map in bytes. Nodes that several maps share count in each of
    /// them.
    pub fn bytes(&self) -> u64 {
        bytes_of(&self.top)
    }

    /// Returns the first block with data at `from` or later. Unwritten blocks contain no data.
    pub fn seek_data(&self, from: FileBlock) -> Option<FileBlock> {
        self.iter_from(from).find(is_data).map(|extent| extent.start.max(from))
    }

    /// Returns the first block without data at `from` or later, at most [`END`]. Unwritten blocks
    /// count as a hole, as they do in the kernel if none of their pages is dirty.
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

    /// Builds a map over `children` of one height, with as many levels as are needed.
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

/// The parameters of a replacement.
struct Change<'a> {
    range: Range<u32>,
    with: &'a [Extent],
    fill: Fill,
}

impl Change<'_> {
    /// Returns `children` after the change. They are `height` levels above the leaves. A child that
    /// only adjoins the range counts as touched too. The first and the last touched child are
    /// joined into one list, and the children between them are removed. So the extents at both ends
    /// of the range come into one leaf, where they can be merged.
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

    /// Returns the extents of the first and the last touched leaf after the change, as one list.
    fn splice(&self, touched: &[Child]) -> Vec<Extent> {
        splice(&ends(touched, Child::extents), &self.range, self.with)
    }
}

/// Joins the entries of the first and the last node of `touched`. Copies nothing if they are the
/// same node.
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

/// Returns the memory size in bytes of a node with these children, and of all nodes below it.
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

/// Splits `list` into chunks of at most `most` entries.
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
    /// The remaining children on each level above `row`, the top first. A map of one level, which
    /// is what most files have, needs no memory for this.
    above: Vec<slice::Iter<'a, Child>>,
    /// The remaining nodes after the present leaf, below the same parent.
    row: slice::Iter<'a, Child>,
    leaf: slice::Iter<'a, Extent>,
}

impl Iterator for Iter<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        loop {
            if let Some(extent) = self.leaf.next() {
                return Some(*extent);
            }
            match self.row.next().map(|child| &child.node) {
                Some(Node::Leaf(extents)) => self.leaf = extents.iter(),
                Some(Node::Inner(below)) => {
                    self.above.push(mem::replace(&mut self.row, below.iter()));
                }
                None => self.row = self.above.pop()?,
            }
        }
    }
}

/// Builds a map from extents in ascending order without overlap. The extents are not merged.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    leaves: Vec<Child>,
    leaf: Vec<Extent>,
}

impl Builder {
    /// Adds an extent after all previous ones.
    pub(crate) fn push(&mut self, extent: Extent) {
        self.leaf.push(extent);
        if self.leaf.len() == LEAF {
            self.close_leaf();
        }
    }

    /// Returns the map of all extents.
    pub(crate) fn finish(mut self) -> Map {
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

/// Returns the mappings of `map` in `range`, cut at the ends of the range. These are the mappings
/// that a replacement of `range` removes.
pub fn overlapping(map: &Map, range: Range<u32>) -> Vec<Extent> {
    map.iter_from(FileBlock(range.start))
        .take_while(|extent| extent.start.0 < range.end)
        .filter_map(|extent| extent.clip(&range))
        .collect()
}

// Replaces a range in a list of extents.

/// Replaces the mappings of `old` in `range` by the extents `with`, and returns the result. All
/// extents in `with` lie in `range`. Adjacent extents are merged where possible, and extents longer
/// than the format allows are split.
pub(crate) fn splice(old: &[Extent], range: &Range<u32>, with: &[Extent]) -> Vec<Extent> {
    let mut new = Vec::with_capacity(old.len() + with.len() + 1);
    let (before, after) = (0..range.start, range.end..END);
    let left = old.iter().take_while(|e| e.start.0 < range.start).filter_map(|e| e.clip(&before));
    let right = old.iter().skip_while(|e| e.end() <= range.end).filter_map(|e| e.clip(&after));
    for extent in left.chain(with.iter().copied()).chain(right) {
        push(&mut new, extent);
    }
    new
}

/// Appends `extent`, which starts at the end of `list` or later.
pub(crate) fn push(list: &mut Vec<Extent>, extent: Extent) {
    if let Some(last) = list.last_mut()
        && last.continued_by(&extent)
        && u64::from(last.len) + u64::from(extent.len) <= u64::from(last.state.max_len())
    {
        last.len += extent.len;
        return;
    }
    list.extend(pieces(extent));
}

/// Splits `extent` into pieces that the format can represent.
pub(crate) fn pieces(extent: Extent) -> impl Iterator<Item = Extent> {
    let step = extent.state.max_len();
    (0..extent.len).step_by(step as usize).map(move |at| Extent {
        start: FileBlock(extent.start.0 + at),
        len: step.min(extent.len - at),
        block: Block(extent.block.0 + u64::from(at)),
        state: extent.state,
    })
}

/// Panics unless `with` ascends without overlap within `range`. A panic indicates a bug in the
/// caller.
pub(crate) fn assert_within(range: &Range<u32>, with: &[Extent]) {
    assert!(range.start <= range.end, "the range {range:?} is reversed");
    let mut from = range.start;
    for extent in with {
        let end = extent.start.0.checked_add(extent.len);
        assert!(
            extent.len > 0 && extent.start.0 >= from && end.is_some_and(|end| end <= range.end),
            "{extent:?} is out of order or out of {range:?}"
        );
        from = extent.end();
    }
}

/// Returns whether the extent contains data.
pub(crate) fn is_data(extent: &Extent) -> bool {
    extent.state == State::Written
}
