//! Loads the block map on disk into the map in memory.

use crate::error::Error;
use crate::plan::extent::{Builder, Limits, Map, Nodes};
use lanefs_ondisk::block_map::{Cause, Expected, Pointers, reach, root_place};
use lanefs_ondisk::extent::{Extent, ROOT_BYTES, State};
use lanefs_ondisk::{Block, Corruption, FileBlock};
use std::collections::HashSet;

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
pub(super) fn root_pointers(limits: &Limits, root: &[u8; ROOT_BYTES]) -> Result<Pointers, Error> {
    let pointers = Pointers::decode_root(root, limits.block_size, &limits.space);
    pointers.map_err(|cause| damaged(limits, None, cause))
}

/// Reads and decodes the node in `block`. Its pointers have `depth` levels of nodes below them. The
/// first file block that the node maps is `start`.
pub(super) fn node_pointers(
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
