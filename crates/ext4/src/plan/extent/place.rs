//! A planned change of a tree, and the bytes of the change after blocks are assigned to the new
//! nodes.

use lanefs_lanes::sync::Arc;
use lanefs_ondisk::extent::{Entries, Extent, Index, Node, ROOT_BYTES};
use lanefs_ondisk::{Block, BlockSize, FileBlock};
use std::ops::Range;

/// Where a node is: in a block, or at an index in the plan's new nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    At(Block),
    New(usize),
}

impl Spot {
    /// Returns the block of the node. `new` contains the blocks of the plan's new nodes.
    pub(in crate::plan) fn block(self, new: &[Block]) -> Block {
        match self {
            Spot::At(block) => block,
            Spot::New(index) => new[index],
        }
    }
}

/// The entries of a planned node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Draft {
    Leaf(Vec<Extent>),
    Index(Vec<(FileBlock, Spot)>),
}

/// A planned node of an extent tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftNode {
    pub(super) depth: u16,
    pub(super) max: u16,
    pub(super) generation: u32,
    pub(super) entries: Draft,
}

/// A planned node of an extent tree or of a block map.
pub trait Encode {
    /// Writes the node into `bytes`; the plan's new nodes are in the blocks `new`.
    fn encode_into(self, new: &[Block], bytes: &mut [u8]);
}

/// How a change of mappings changes the nodes `N` of a tree or of a block map. A plan that is
/// applied as a whole leaves a consistent tree or map.
#[derive(Debug)]
pub struct Plan<N = DraftNode> {
    pub(in crate::plan) block_size: BlockSize,
    pub(in crate::plan) root: N,
    pub(in crate::plan) updates: Vec<(Block, N)>,
    pub(in crate::plan) new: Vec<N>,
    pub(in crate::plan) freed: Vec<Block>,
    pub(in crate::plan) covered: Range<u32>,
}

/// A plan as bytes. The nodes of a tree still need their checksums: `lanefs_ondisk::extent::seal`.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The new `i_block` of the inode.
    pub root: [u8; ROOT_BYTES],
    /// Whole blocks: changed nodes and new ones.
    pub writes: Vec<(Block, Arc<[u8]>)>,
    /// Nodes that are no longer part of the tree or map.
    pub freed: Vec<Block>,
}

impl<N: Encode> Plan<N> {
    /// Returns the number of blocks that [`Plan::place`] needs.
    pub fn nodes_needed(&self) -> usize {
        self.new.len()
    }

    /// Returns the number of blocks written: changed nodes and new ones.
    pub fn nodes_written(&self) -> usize {
        self.updates.len() + self.new.len()
    }

    /// Returns the nodes that will no longer be part of the tree or map.
    pub fn freed(&self) -> &[Block] {
        &self.freed
    }

    /// Returns the part of the requested range that the plan replaces. This part begins at the
    /// start of the range. The rest needs further plans, each for the tree or map that the previous
    /// plan produced.
    pub fn covered(&self) -> Range<u32> {
        self.covered.clone()
    }

    /// Assigns `blocks` to the new nodes. There must be [`Plan::nodes_needed`] blocks.
    ///
    /// # Panics
    /// If the number of `blocks` is wrong, or if a block map gets a block number that exceeds 32
    /// bits.
    pub fn place(self, blocks: &[Block]) -> Placed {
        assert_eq!(blocks.len(), self.new.len(), "each new node has a block");
        let mut root = [0; ROOT_BYTES];
        self.root.encode_into(blocks, &mut root);
        let new = blocks.iter().copied().zip(self.new);
        let writes = self.updates.into_iter().chain(new).map(|(block, node)| {
            let mut bytes = vec![0; self.block_size.bytes()];
            node.encode_into(blocks, &mut bytes);
            (block, bytes.into())
        });
        Placed { root, writes: writes.collect(), freed: self.freed }
    }
}

impl Encode for DraftNode {
    fn encode_into(self, new: &[Block], bytes: &mut [u8]) {
        let entries = match self.entries {
            Draft::Leaf(extents) => Entries::Leaf(extents),
            Draft::Index(children) => {
                let index =
                    |&(start, spot): &(FileBlock, Spot)| Index { start, child: spot.block(new) };
                Entries::Index(children.iter().map(index).collect())
            }
        };
        let DraftNode { depth, max, generation, .. } = self;
        Node { depth, max, generation, entries }.encode_into(bytes);
    }
}

impl DraftNode {
    pub(super) fn of(node: Node) -> DraftNode {
        let entries = match node.entries {
            Entries::Leaf(extents) => Draft::Leaf(extents),
            Entries::Index(children) => {
                Draft::Index(children.iter().map(|c| (c.start, Spot::At(c.child))).collect())
            }
        };
        DraftNode { depth: node.depth, max: node.max, generation: node.generation, entries }
    }
}

impl Draft {
    pub(super) fn len(&self) -> usize {
        match self {
            Draft::Leaf(extents) => extents.len(),
            Draft::Index(children) => children.len(),
        }
    }

    /// Returns the first logical block.
    pub(super) fn start(&self) -> Option<FileBlock> {
        match self {
            Draft::Leaf(extents) => extents.first().map(|extent| extent.start),
            Draft::Index(children) => children.first().map(|(start, _)| *start),
        }
    }

    /// Splits off all entries after the first `at` entries.
    pub(super) fn split_off(&mut self, at: usize) -> Draft {
        match self {
            Draft::Leaf(extents) => Draft::Leaf(extents.split_off(at)),
            Draft::Index(children) => Draft::Index(children.split_off(at)),
        }
    }
}
