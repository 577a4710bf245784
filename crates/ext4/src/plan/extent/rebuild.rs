//! Plans a whole new tree for a file. All mappings of the file are replaced at once, and no node of
//! the old tree is changed.

use super::load::{Limits, Nodes, child_range};
use super::map::{Builder, Map, overlapping};
use super::place::{Draft, DraftNode, Plan};
use super::plan::Planner;
use super::splice::push;
use crate::error::Error;
use lanefs_ondisk::extent::{END, Entries, Extent, Node, ROOT_BYTES};
use lanefs_ondisk::{Block, FileBlock};
use std::ops::Range;

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
