//! A planned change of a tree, and its bytes once the new nodes have places.

use lanefs_lanes::sync::Arc;
use lanefs_ondisk::extent::{Entries, Extent, Index, Node, ROOT_BYTES};
use lanefs_ondisk::{Block, BlockSize, FileBlock};
use std::ops::Range;

/// The place of a node: a block, or an index into the plan's new nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    At(Block),
    New(usize),
}

/// The entries of a planned node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Draft {
    Leaf(Vec<Extent>),
    Index(Vec<(FileBlock, Spot)>),
}

/// A planned node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DraftNode {
    pub depth: u16,
    pub max: u16,
    pub generation: u32,
    pub entries: Draft,
}

/// The effect of a change of mappings on the nodes of a tree. Applied as a whole it leaves a
/// consistent tree.
#[derive(Debug)]
pub struct Plan {
    pub(super) block_size: BlockSize,
    pub(super) root: DraftNode,
    pub(super) updates: Vec<(Block, DraftNode)>,
    pub(super) new: Vec<DraftNode>,
    pub(super) freed: Vec<Block>,
    pub(super) covered: Range<u32>,
}

/// A plan as bytes. The nodes still need their checksums: `lanefs_ondisk::extent::seal`.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The new `i_block` of the inode.
    pub root: [u8; ROOT_BYTES],
    /// Whole blocks: changed nodes and new ones.
    pub writes: Vec<(Block, Arc<[u8]>)>,
    /// Nodes that are no longer part of the tree.
    pub freed: Vec<Block>,
}

impl Plan {
    /// Returns the number of blocks that [`Plan::place`] needs.
    pub fn nodes_needed(&self) -> usize {
        self.new.len()
    }

    /// Returns the number of blocks written: changed nodes and new ones.
    pub fn nodes_written(&self) -> usize {
        self.updates.len() + self.new.len()
    }

    /// Returns the nodes that will no longer be part of the tree.
    pub fn freed(&self) -> &[Block] {
        &self.freed
    }

    /// Returns the part of the requested range that the plan replaces, from its start. The rest
    /// needs further plans, each for the tree that the previous one produced.
    pub fn covered(&self) -> Range<u32> {
        self.covered.clone()
    }

    /// Puts the new nodes into `blocks`, whose number is [`Plan::nodes_needed`].
    ///
    /// # Panics
    /// If the number of blocks is another one.
    pub fn place(self, blocks: &[Block]) -> Placed {
        assert_eq!(
            blocks.len(),
            self.new.len(),
            "a plan is placed into as many blocks as it needs"
        );
        let mut root = [0; ROOT_BYTES];
        self.root.encode(blocks).encode_into(&mut root);
        let new = blocks.iter().copied().zip(self.new);
        let writes = self.updates.into_iter().chain(new).map(|(block, node)| {
            let mut bytes = vec![0; self.block_size.bytes()];
            node.encode(blocks).encode_into(&mut bytes);
            (block, bytes.into())
        });
        Placed { root, writes: writes.collect(), freed: self.freed }
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

    fn encode(self, new: &[Block]) -> Node {
        let entries = match self.entries {
            Draft::Leaf(extents) => Entries::Leaf(extents),
            Draft::Index(children) => {
                let index = |&(start, spot): &(FileBlock, Spot)| match spot {
                    Spot::At(child) => Index { start, child },
                    Spot::New(i) => Index { start, child: new[i] },
                };
                Entries::Index(children.iter().map(index).collect())
            }
        };
        Node { depth: self.depth, max: self.max, generation: self.generation, entries }
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

    /// Splits off the entries after the first `at`.
    pub(super) fn split_off(&mut self, at: usize) -> Draft {
        match self {
            Draft::Leaf(extents) => Draft::Leaf(extents.split_off(at)),
            Draft::Index(children) => Draft::Index(children.split_off(at)),
        }
    }
}
