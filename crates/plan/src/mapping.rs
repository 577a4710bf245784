//! The two forms of an inode's mappings: an extent tree, or an indirect block map.

use crate::error::Error;
use crate::extent::{Extent, Limits, Map, Nodes, Placed, ROOT_BYTES};
use crate::{block_map, extent};
use lanefs_ondisk::Block;
use std::ops::Range;

/// The form of an inode's mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// An extent tree.
    Extents,
    /// An indirect block map.
    BlockMap,
}

/// A planned change of mappings: see [`extent::Plan`] and [`block_map::Plan`].
#[derive(Debug)]
pub enum Plan {
    /// A change of an extent tree.
    Extents(extent::Plan),
    /// A change of a block map.
    BlockMap(block_map::Plan),
}

impl Form {
    /// Returns the root, which is `i_block` of the inode, for a file without blocks.
    pub fn empty_root(self) -> [u8; ROOT_BYTES] {
        match self {
            Form::Extents => extent::EMPTY_ROOT,
            Form::BlockMap => [0; ROOT_BYTES],
        }
    }

    /// Reads all mappings: see [`extent::load`] and [`block_map::load`].
    ///
    /// # Errors
    /// [`Error::Corruption`], which names the inode and the block; and the errors of `nodes`.
    pub fn load(
        self,
        root: &[u8; ROOT_BYTES],
        nodes: &dyn Nodes,
        limits: &Limits,
    ) -> Result<Map, Error> {
        match self {
            Form::Extents => extent::load(root, nodes, limits),
            Form::BlockMap => block_map::load(root, nodes, limits),
        }
    }

    /// Plans a change: see [`extent::plan_replace`] and [`block_map::plan_replace`].
    ///
    /// # Errors
    /// [`Error::Corruption`], which names the inode and the block; and the errors of `nodes`.
    pub fn plan_replace(
        self,
        root: &[u8; ROOT_BYTES],
        nodes: &dyn Nodes,
        limits: &Limits,
        range: Range<u32>,
        with: &[Extent],
    ) -> Result<Plan, Error> {
        Ok(match self {
            Form::Extents => Plan::Extents(extent::plan_replace(root, nodes, limits, range, with)?),
            Form::BlockMap => {
                Plan::BlockMap(block_map::plan_replace(root, nodes, limits, range, with)?)
            }
        })
    }
}

impl Plan {
    /// Returns the number of blocks that [`Plan::place`] needs.
    pub fn nodes_needed(&self) -> usize {
        match self {
            Plan::Extents(plan) => plan.nodes_needed(),
            Plan::BlockMap(plan) => plan.nodes_needed(),
        }
    }

    /// Returns the number of blocks written: changed nodes and new ones.
    pub fn nodes_written(&self) -> usize {
        match self {
            Plan::Extents(plan) => plan.nodes_written(),
            Plan::BlockMap(plan) => plan.nodes_written(),
        }
    }

    /// Returns the nodes that the change frees.
    pub fn freed(&self) -> &[Block] {
        match self {
            Plan::Extents(plan) => plan.freed(),
            Plan::BlockMap(plan) => plan.freed(),
        }
    }

    /// Returns the part of the requested range that the plan replaces.
    pub fn covered(&self) -> Range<u32> {
        match self {
            Plan::Extents(plan) => plan.covered(),
            Plan::BlockMap(plan) => plan.covered(),
        }
    }

    /// Puts the new nodes into `blocks`. There must be [`Plan::nodes_needed`] blocks.
    pub fn place(self, blocks: &[Block]) -> Placed {
        match self {
            Plan::Extents(plan) => plan.place(blocks),
            Plan::BlockMap(plan) => plan.place(blocks),
        }
    }
}
