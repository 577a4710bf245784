//! Plans changes of indirect block maps, the mappings of ext2 and ext3.
//!
//! As with extent trees, [`load`] builds the `Map` of a file from its nodes, which are indirect
//! blocks. [`plan_replace`] computes which nodes are changed, added and freed by
//! a change of mappings. A block map has no unwritten blocks, so all mapped blocks contain data.

use crate::error::Error;
use crate::extent;
use crate::extent::{Builder, Encode, Limits, Map, Nodes, Spot, assert_within};
use lanefs_ondisk::block_map::{Cause, Expected, Pointers, fanout, mappable, reach, root_place};
use lanefs_ondisk::extent::{Extent, ROOT_BYTES, State};
use lanefs_ondisk::{Block, Corruption, FileBlock};
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

// Loads the block map on disk into the map in memory.

/// Reads the whole block map under `root`.
///
/// A hostile map cannot cause endless work, since a second reference to the same node is an error.
///
/// # Errors
/// [`Error::Corruption`], which names the inode and the block; and the errors that `nodes` returns.
pub fn load(root: &[u8; ROOT_BYTES], nodes: &dyn Nodes, limits: &Limits) -> Result<Map, Error> {
    let mut walk =
        Walk { nodes, limits, visited: HashSet::new(), pending: None, map: Builder::default() };
    for (index, pointer) in root_pointers(limits, root)?.0.into_iter().enumerate() {
        let Some(block) = pointer else { continue };
        let (depth, start) = root_place(limits.block_size, index);
        walk.pointer(block, depth, start)?;
    }
    Ok(walk.finish())
}

/// Decodes the pointers that are stored in the inode.
pub(crate) fn root_pointers(limits: &Limits, root: &[u8; ROOT_BYTES]) -> Result<Pointers, Error> {
    let pointers = Pointers::decode_root(root, limits.block_size, &limits.space);
    pointers.map_err(|cause| damaged(limits, None, cause))
}

/// Reads and decodes the node in `block`. Its pointers have `depth` levels of nodes below them. The
/// first file block that the node maps is `start`.
pub(crate) fn node_pointers(
    nodes: &dyn Nodes,
    limits: &Limits,
    block: Block,
    depth: u16,
    start: u64,
) -> Result<Pointers, Error> {
    let expected = Expected { start, depth, space: limits.space.clone() };
    let pointers = Pointers::decode(&nodes.node(block)?, limits.block_size, &expected);
    pointers.map_err(|cause| damaged(limits, Some(block), cause))
}

fn damaged(limits: &Limits, block: Option<Block>, cause: Cause) -> Error {
    Corruption::BlockMap { ino: limits.ino, block, cause }.into()
}

struct Walk<'a> {
    nodes: &'a dyn Nodes,
    limits: &'a Limits,
    /// The nodes read so far.
    visited: HashSet<Block>,
    /// The last extent so far, which the next block may continue.
    pending: Option<Extent>,
    map: Builder,
}

impl Walk<'_> {
    /// Adds the file blocks that a pointer to `block` maps, the first of which is `start`. Below
    /// the pointer are `depth` levels of nodes, at most three.
    fn pointer(&mut self, block: Block, depth: u16, start: u64) -> Result<(), Error> {
        let Some(below) = depth.checked_sub(1) else {
            self.data(block, start);
            return Ok(());
        };
        if !self.visited.insert(block) {
            return Err(damaged(self.limits, Some(block), Cause::Twice { block }));
        }
        let pointers = node_pointers(self.nodes, self.limits, block, below, start)?;
        let each = reach(self.limits.block_size, below);
        for (start, pointer) in (start..).step_by(each as usize).zip(pointers.0) {
            if let Some(block) = pointer {
                self.pointer(block, below, start)?;
            }
        }
        Ok(())
    }

    /// Adds one data block. The decoder has checked that `start` is below `END`.
    fn data(&mut self, block: Block, start: u64) {
        let next = Extent { start: FileBlock(start as u32), len: 1, block, state: State::Written };
        match &mut self.pending {
            Some(last) if last.continued_by(&next) && last.len < State::Written.max_len() => {
                last.len += 1;
            }
            pending => {
                if let Some(done) = pending.replace(next) {
                    self.map.push(done);
                }
            }
        }
    }

    fn finish(mut self) -> Map {
        if let Some(last) = self.pending {
            self.map.push(last);
        }
        self.map.finish()
    }
}

// Plans how a change of mappings changes the indirect blocks.

/// The largest number of nodes that one plan reads or adds. It bounds the credits that a handle
/// needs. At most three nodes are on the path to one block, so every plan covers some blocks.
pub(crate) const MOST_NODES: u16 = 8;

/// The pointers of a planned node.
pub type Draft = Vec<Option<Spot>>;

/// How a change of mappings changes the nodes of a block map.
pub type Plan = extent::Plan<Draft>;

/// Plans the replacement of the mappings in `range` by the extents `with`. These extents ascend,
/// lie in `range`, and may have any length. None of them is unwritten. [`Plan::covered`] returns
/// the part of `range` that the plan replaces, which is empty only if `range` is. Nodes without
/// pointers are freed, even if they were empty before. The caller frees the blocks of the replaced
/// extents.
///
/// # Errors
/// [`Error::FileTooLarge`] if the map cannot reach an extent; [`Error::Corruption`], which names
/// the inode and the block; and the errors that `nodes` returns.
///
/// # Panics
/// If `with` is not in order, not in `range` or not written.
pub fn plan_replace(
    root: &[u8; ROOT_BYTES],
    nodes: &dyn Nodes,
    limits: &Limits,
    range: Range<u32>,
    with: &[Extent],
) -> Result<Plan, Error> {
    assert!(with.iter().all(|extent| extent.state == State::Written));
    assert_within(&range, with);
    let reachable = mappable(limits.block_size);
    if with.last().is_some_and(|last| u64::from(last.end()) > reachable) {
        return Err(Error::FileTooLarge);
    }
    let mut planner = Planner {
        nodes,
        limits,
        range: u64::from(range.start)..u64::from(range.end),
        with,
        nodes_left: MOST_NODES,
        updates: Vec::new(),
        new: Vec::new(),
        freed: Vec::new(),
    };
    let mut slots = draft_of(root_pointers(limits, root)?);
    let mut stop = None;
    for (index, slot) in slots.iter_mut().enumerate() {
        let (depth, start) = root_place(limits.block_size, index);
        if let ControlFlow::Break(at) = planner.replace(slot, depth, start)? {
            stop = Some(at);
            break;
        }
    }
    // If the loop did not stop early, the plan covers the whole range: any part of the range beyond
    // the last pointer has no mappings.
    let end = stop.map_or(range.end, |at| at.min(range.end.into()) as u32);
    let Planner { updates, new, freed, .. } = planner;
    let block_size = limits.block_size;
    Ok(Plan { block_size, root: slots, updates, new, freed, covered: range.start..end })
}

struct Planner<'a> {
    nodes: &'a dyn Nodes,
    limits: &'a Limits,
    range: Range<u64>,
    with: &'a [Extent],
    /// The number of nodes that the plan may still read or add.
    nodes_left: u16,
    updates: Vec<(Block, Draft)>,
    new: Vec<Draft>,
    freed: Vec<Block>,
}

impl Planner<'_> {
    /// Applies the change to the file blocks that `slot` maps, the first of which is `start`. Below
    /// `slot` are `depth` levels of nodes. Breaks with the first file block that this plan does not
    /// cover.
    fn replace(
        &mut self,
        slot: &mut Option<Spot>,
        depth: u16,
        start: u64,
    ) -> Result<ControlFlow<u64>, Error> {
        let end = start + reach(self.limits.block_size, depth);
        let changed = start.max(self.range.start)..end.min(self.range.end);
        if start >= self.range.end {
            return Ok(ControlFlow::Break(self.range.end));
        }
        if changed.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(below) = depth.checked_sub(1) else {
            *slot = self.block_for(start).map(Spot::At);
            return Ok(ControlFlow::Continue(()));
        };
        if slot.is_none() && !self.maps_any(&changed) {
            return Ok(ControlFlow::Continue(()));
        }
        if self.nodes_left < depth {
            return Ok(ControlFlow::Break(changed.start));
        }
        self.nodes_left -= 1;
        let old = match *slot {
            Some(Spot::At(block)) => {
                draft_of(node_pointers(self.nodes, self.limits, block, below, start)?)
            }
            _ => vec![None; fanout(self.limits.block_size)],
        };
        let each = reach(self.limits.block_size, below);
        let first = ((changed.start - start) / each) as usize;
        let mut new = old.clone();
        let mut flow = ControlFlow::Continue(());
        for (index, child) in new.iter_mut().enumerate().skip(first) {
            flow = self.replace(child, below, start + index as u64 * each)?;
            if flow.is_break() {
                break;
            }
        }
        self.store(slot, &old, new);
        Ok(flow)
    }

    /// Stores the new pointers of the node to which `slot` refers: writes, adds, frees or keeps the
    /// node.
    fn store(&mut self, slot: &mut Option<Spot>, old: &Draft, new: Draft) {
        let is_empty = new.iter().all(Option::is_none);
        match *slot {
            Some(Spot::At(block)) if is_empty => {
                self.freed.push(block);
                *slot = None;
            }
            Some(Spot::At(block)) if new != *old => self.updates.push((block, new)),
            None if !is_empty => {
                *slot = Some(Spot::New(self.new.len()));
                self.new.push(new);
            }
            _ => {}
        }
    }

    /// Returns the physical block of a file block after the change.
    fn block_for(&self, at: u64) -> Option<Block> {
        let index = self.with.partition_point(|extent| u64::from(extent.end()) <= at);
        let extent = self.with.get(index).filter(|extent| u64::from(extent.start.0) <= at)?;
        Some(Block(extent.block.0 + (at - u64::from(extent.start.0))))
    }

    /// Returns whether the change maps any block of `range`.
    fn maps_any(&self, range: &Range<u64>) -> bool {
        let index = self.with.partition_point(|extent| u64::from(extent.end()) <= range.start);
        self.with.get(index).is_some_and(|extent| u64::from(extent.start.0) < range.end)
    }
}

fn draft_of(pointers: Pointers) -> Draft {
    pointers.0.into_iter().map(|pointer| pointer.map(Spot::At)).collect()
}

impl Encode for Draft {
    fn encode_into(self, new: &[Block], bytes: &mut [u8]) {
        let block = |spot: Option<Spot>| spot.map(|spot| spot.block(new));
        Pointers(self.into_iter().map(block).collect()).encode_into(bytes);
    }
}

#[cfg(test)]
mod tests;
