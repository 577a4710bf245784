//! Plans how a change of mappings changes the tree.

use crate::error::Error;
use crate::extent::map::{Builder, Map, assert_within, overlapping, pieces, push, splice};
use crate::extent::tree::{Draft, DraftNode, Limits, Nodes, Plan, Spot, child_range};
use lanefs_ondisk::extent::{Cause, END, Entries, Extent, MAX_DEPTH, Node, ROOT_BYTES};
use lanefs_ondisk::{Block, Corruption, FileBlock};
use std::ops::Range;

/// Plans the replacement of the mappings in `range` by the extents `with`. These extents ascend,
/// lie in `range`, and may have any length. A plan changes one leaf and its ancestors, within
/// [`worst_case`](super::worst_case); [`Plan::covered`] returns the part of `range` that the plan
/// replaces, which is empty only if `range` is. The mappings after the last block of the largest
/// file are such an empty range.
///
/// A leaf that overflows is split in the middle, or at its end if the change was at the end. So a
/// file that grows at its end has full leaves. Parents are handled in the same way. A full root
/// moves into a block. Nodes without entries are freed, and a root with one child takes the child's
/// entries if they fit. The caller frees the blocks of the replaced extents: see
/// [`overlapping`](super::overlapping).
///
/// # Errors
/// [`Error::Corruption`], which names the inode and the block; and the errors of `nodes`.
///
/// # Panics
/// If `with` is not in order or not in `range`.
pub fn plan_replace(
    root: &[u8; ROOT_BYTES],
    nodes: &dyn Nodes,
    limits: &Limits,
    range: Range<u32>,
    with: &[Extent],
) -> Result<Plan, Error> {
    assert!(limits.node_max >= 4);
    assert_within(&range, with);
    let path = descend(root, nodes, limits, range.start)?;
    let mut planner =
        Planner { nodes, limits, updates: Vec::new(), new: Vec::new(), freed: Vec::new() };
    let (root, covered) = planner.replace(path, range, with)?;
    let Planner { updates, new, freed, .. } = planner;
    Ok(Plan { block_size: limits.block_size, root, updates, new, freed, covered })
}

/// A node on the path to the leaf.
struct Step {
    /// `None` for the root.
    block: Option<Block>,
    node: DraftNode,
    /// The child with which the path continues; 0 in the leaf.
    at: usize,
    /// The node ends before this logical block.
    to: u32,
}

/// Returns the path from the root to the leaf to which `start` belongs.
fn descend(
    root: &[u8; ROOT_BYTES],
    nodes: &dyn Nodes,
    limits: &Limits,
    start: u32,
) -> Result<Vec<Step>, Error> {
    let mut path = Vec::new();
    let (mut block, mut node, mut to) = (None, limits.root(root)?, END);
    while let Entries::Index(children) = &node.entries {
        // Blocks before the first child belong to the first child.
        let at = children.partition_point(|child| child.start.0 <= start).saturating_sub(1);
        let (range, child) = (child_range(children, at, to), children[at].child);
        let (child_to, depth) = (range.end, node.depth - 1);
        let below = limits.node(nodes, child, depth, range)?;
        path.push(Step { block, node: DraftNode::of(node), at, to });
        (block, node, to) = (Some(child), below, child_to);
    }
    path.push(Step { block, node: DraftNode::of(node), at: 0, to });
    Ok(path)
}

/// The position of the change in a node, which determines where the node is split.
#[derive(Clone, Copy)]
enum Changed {
    AtEnd,
    Within,
}

/// A list of children that replaces one child in its parent.
type Row = Vec<(FileBlock, Spot)>;

pub(crate) struct Planner<'a> {
    nodes: &'a dyn Nodes,
    limits: &'a Limits,
    updates: Vec<(Block, DraftNode)>,
    new: Vec<DraftNode>,
    freed: Vec<Block>,
}

impl Planner<'_> {
    /// Plans a tree of new nodes for `entries`, which must be all leaf entries of the file.
    pub(crate) fn whole_tree(
        root: DraftNode,
        nodes: &dyn Nodes,
        limits: &Limits,
        entries: Draft,
    ) -> Result<Plan, Error> {
        let (updates, new, freed) = (Vec::new(), Vec::new(), Vec::new());
        let mut planner = Planner { nodes, limits, updates, new, freed };
        let root = planner.settle_root(DraftNode { depth: 0, ..root }, entries, Changed::AtEnd)?;
        let Planner { updates, new, freed, .. } = planner;
        Ok(Plan { block_size: limits.block_size, root, updates, new, freed, covered: 0..END })
    }

    /// Applies the change from the leaf up; returns the root and the covered part of `range`.
    fn replace(
        &mut self,
        mut path: Vec<Step>,
        range: Range<u32>,
        with: &[Extent],
    ) -> Result<(DraftNode, Range<u32>), Error> {
        let leaf = path.pop().expect("a path has a leaf at its end");
        let Draft::Leaf(old) = &leaf.node.entries else { unreachable!("the path ends in a leaf") };
        let (range, with) = self.one_leaf_full(range, with, leaf.to);
        let changed = match old.last() {
            Some(last) if range.start < last.end() => Changed::Within,
            _ => Changed::AtEnd,
        };
        let mut entries = Draft::Leaf(splice(old, &range, &with));
        let mut step = leaf;
        let mut changed = changed;
        while let Some(parent) = path.pop() {
            let row = self.settle(&step, entries, changed);
            let Draft::Index(mut children) = parent.node.entries.clone() else {
                unreachable!("a leaf has no children")
            };
            changed = match parent.at + 1 == children.len() {
                true => Changed::AtEnd,
                false => Changed::Within,
            };
            children.splice(parent.at..=parent.at, row);
            entries = Draft::Index(children);
            step = parent;
        }
        let root = self.settle_root(step.node, entries, changed)?;
        Ok((self.collapse(root)?, range))
    }

    /// Returns the part of the change that lies in the leaf, whose file blocks end before `to`.
    /// This part adds at most as many entries as fit into one leaf, so one additional leaf
    /// suffices.
    fn one_leaf_full(
        &self,
        range: Range<u32>,
        with: &[Extent],
        to: u32,
    ) -> (Range<u32>, Vec<Extent>) {
        let mut range = range.start..range.end.min(to);
        let room = usize::from(self.limits.node_max) - 1; // one for an extent split in two
        let within = range.clone();
        let mut with = with.iter().filter_map(|e| e.clip(&within)).flat_map(pieces);
        let taken: Vec<Extent> = with.by_ref().take(room).collect();
        if let Some(next) = with.next() {
            range.end = next.start.0;
        }
        (range, taken)
    }

    /// Stores the new `entries` of the node of `step`: keeps, writes, splits or frees the node. The
    /// node must be in a block. Returns the children that replace the node in its parent.
    fn settle(&mut self, step: &Step, mut entries: Draft, changed: Changed) -> Row {
        let block = step.block.expect("only the root is not in a block");
        let max = usize::from(step.node.max);
        if entries.len() == 0 {
            self.freed.push(block);
            return Vec::new();
        }
        let mut rest = None;
        if entries.len() > max {
            let keep = match changed {
                Changed::AtEnd => max,
                Changed::Within => entries.len().div_ceil(2).min(max),
            };
            rest = Some(entries.split_off(keep));
        }
        let start = entries.start().expect("it has entries");
        if entries != step.node.entries {
            self.updates.push((block, DraftNode { entries, ..step.node.clone() }));
        }
        let mut row = vec![(start, Spot::At(block))];
        row.extend(rest.map(|rest| self.add(rest, step.node.depth)).unwrap_or_default());
        row
    }

    /// Creates new nodes at `depth` for `entries`.
    fn add(&mut self, mut entries: Draft, depth: u16) -> Row {
        let max = self.limits.node_max;
        let mut row = Row::new();
        while entries.len() > 0 {
            let rest = entries.split_off(entries.len().min(usize::from(max)));
            let start = entries.start().expect("it has entries");
            row.push((start, Spot::New(self.new.len())));
            self.new.push(DraftNode { depth, max, generation: 0, entries });
            entries = rest;
        }
        row
    }

    /// Stores the new `entries` of the root. If they do not fit, they move into blocks below the
    /// root.
    fn settle_root(
        &mut self,
        root: DraftNode,
        mut entries: Draft,
        changed: Changed,
    ) -> Result<DraftNode, Error> {
        let mut depth = root.depth;
        while entries.len() > usize::from(root.max) {
            let rest = match changed {
                Changed::Within if entries.len() > usize::from(self.limits.node_max) => {
                    Some(entries.split_off(entries.len().div_ceil(2)))
                }
                _ => None,
            };
            let mut row = self.add(entries, depth);
            row.extend(rest.map(|rest| self.add(rest, depth)).unwrap_or_default());
            entries = Draft::Index(row);
            depth += 1;
        }
        if depth > MAX_DEPTH {
            let cause = Cause::TooDeep { depth, max: MAX_DEPTH };
            return Err(Corruption::ExtentNode { ino: self.limits.ino, block: None, cause }.into());
        }
        if entries.len() == 0 {
            (depth, entries) = (0, Draft::Leaf(Vec::new()));
        }
        Ok(DraftNode { depth, entries, ..root })
    }

    /// Moves the entries of the root's child into the root, as long as the root has only one child
    /// and the entries fit.
    fn collapse(&mut self, mut root: DraftNode) -> Result<DraftNode, Error> {
        while let Draft::Index(children) = &root.entries
            && let [(start, Spot::At(block))] = children[..]
        {
            let updated = self.updates.iter().position(|(at, _)| *at == block);
            let fits = |child: &DraftNode| child.entries.len() <= usize::from(root.max);
            let child = match updated {
                Some(i) if fits(&self.updates[i].1) => self.updates.swap_remove(i).1,
                Some(_) => break,
                None => {
                    let (depth, range) = (root.depth - 1, start.0..END);
                    let child = self.limits.node(self.nodes, block, depth, range)?;
                    match DraftNode::of(child) {
                        child if fits(&child) => child,
                        _ => break,
                    }
                }
            };
            self.freed.push(block);
            (root.depth, root.entries) = (child.depth, child.entries);
        }
        Ok(root)
    }
}

// Plans a whole new tree for a file. All mappings of the file are replaced at once, and no node of
// the old tree is changed.

/// All mappings of a file in ascending order, merged where the format allows it.
#[derive(Debug, Default)]
pub struct Layout {
    extents: Vec<Extent>,
}

impl Layout {
    /// Returns the first file block after the last extent.
    pub fn end(&self) -> u32 {
        self.extents.last().map_or(0, Extent::end)
    }

    /// Adds the blocks of `extent` at file block `start`, which is at or after [`Layout::end`].
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] if the extent would end after the last block of the largest file.
    pub fn add(&mut self, start: u32, extent: Extent) -> Result<(), Error> {
        debug_assert!(start >= self.end(), "extents ascend");
        if extent.len > END - start {
            return Err(Error::FileTooLarge);
        }
        push(&mut self.extents, Extent { start: FileBlock(start), ..extent });
        Ok(())
    }

    /// Returns the mappings of a file after its blocks `range` are removed: the blocks after the
    /// range move to its start.
    pub fn without(map: &Map, range: Range<u32>) -> Result<Layout, Error> {
        let mut layout = Layout::default();
        for extent in overlapping(map, 0..range.start) {
            layout.add(extent.start.0, extent)?;
        }
        for extent in overlapping(map, range.end..END) {
            layout.add(extent.start.0 - (range.end - range.start), extent)?;
        }
        Ok(layout)
    }

    /// Returns the mappings of a file after a hole is inserted: the blocks from `at` on move `len`
    /// blocks towards the end.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] if a block would move beyond the end of the largest file.
    pub fn with_hole(map: &Map, at: u32, len: u32) -> Result<Layout, Error> {
        let mut layout = Layout::default();
        for extent in overlapping(map, 0..at) {
            layout.add(extent.start.0, extent)?;
        }
        for extent in overlapping(map, at..END) {
            let start = extent.start.0.checked_add(len).ok_or(Error::FileTooLarge)?;
            layout.add(start, extent)?;
        }
        Ok(layout)
    }

    /// Returns the mappings for readers.
    pub fn map(&self) -> Map {
        let mut builder = Builder::default();
        self.extents.iter().for_each(|extent| builder.push(*extent));
        builder.finish()
    }

    /// Plans a tree with these mappings. All its nodes are new, and all are full except the last
    /// node of each level.
    ///
    /// # Errors
    /// [`Error::Corruption`] if `root`, the root of the old tree, is damaged.
    pub fn plan(
        &self,
        root: &[u8; ROOT_BYTES],
        nodes: &dyn Nodes,
        limits: &Limits,
    ) -> Result<Plan, Error> {
        let root = DraftNode::of(limits.root(root)?);
        Planner::whole_tree(root, nodes, limits, Draft::Leaf(self.extents.clone()))
    }
}

/// Returns the blocks of all nodes below `root`.
///
/// # Errors
/// [`Error::Corruption`], which names the inode and the block; and the errors of `nodes`.
pub fn node_blocks(
    root: &[u8; ROOT_BYTES],
    nodes: &dyn Nodes,
    limits: &Limits,
) -> Result<Vec<Block>, Error> {
    let mut found = Vec::new();
    below(&limits.root(root)?, END, nodes, limits, &mut found)?;
    Ok(found)
}

/// Adds the blocks of all nodes below `node`, which ends before `to`. Recurses at most five calls
/// deep, because it does not read the leaves.
fn below(
    node: &Node,
    to: u32,
    nodes: &dyn Nodes,
    limits: &Limits,
    found: &mut Vec<Block>,
) -> Result<(), Error> {
    let Entries::Index(children) = &node.entries else { return Ok(()) };
    for (i, child) in children.iter().enumerate() {
        found.push(child.child);
        if node.depth > 1 {
            let range = child_range(children, i, to);
            let (to, depth) = (range.end, node.depth - 1);
            below(&limits.node(nodes, child.child, depth, range)?, to, nodes, limits, found)?;
        }
    }
    Ok(())
}
