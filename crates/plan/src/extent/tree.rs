//! The tree on disk: reading it, a planned change of it, and the bytes of the change after blocks
//! are assigned to the new nodes.

use crate::error::Error;
use crate::extent::map::{Builder, Map};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::extent::{
    END, Entries, Expected, Extent, Index, Node, NodePosition, ROOT_BYTES, capacity,
};
use lanefs_ondisk::{Block, BlockSize, Corruption, FileBlock, Ino};
use std::ops::Range;

/// Read access to the nodes that are in blocks.
pub trait Nodes {
    /// Returns the whole block, whose checksum was verified.
    fn node(&self, block: Block) -> Result<Arc<[u8]>, Error>;
}

/// The limits of one file's tree.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The owner of the tree, for errors.
    pub ino: Ino,
    /// Size of a node in a block.
    pub block_size: BlockSize,
    /// The largest number of entries in a new node in a block: at least 4, and at most as many as
    /// fit. With a small value, few extents make a deep tree.
    pub node_max: u16,
    /// The physical blocks that files may use: after the superblock, within the file system.
    pub space: Range<u64>,
}

impl Limits {
    /// Returns the format's limits.
    pub fn new(ino: Ino, block_size: BlockSize, space: Range<u64>) -> Limits {
        Limits { ino, block_size, node_max: capacity(block_size.bytes()), space }
    }

    /// Decodes the root.
    pub(crate) fn root(&self, bytes: &[u8; ROOT_BYTES]) -> Result<Node, Error> {
        self.decode(bytes, None, NodePosition::Root, 0..END)
    }

    /// Reads and decodes a node that is in a block.
    pub(crate) fn node(
        &self,
        nodes: &dyn Nodes,
        block: Block,
        depth: u16,
        range: Range<u32>,
    ) -> Result<Node, Error> {
        self.decode(&nodes.node(block)?, Some(block), NodePosition::Depth(depth), range)
    }

    fn decode(
        &self,
        bytes: &[u8],
        block: Option<Block>,
        position: NodePosition,
        range: Range<u32>,
    ) -> Result<Node, Error> {
        let expected = Expected { position, range, space: self.space.clone() };
        let node = Node::decode(bytes, &expected);
        node.map_err(|cause| Corruption::ExtentNode { ino: self.ino, block, cause }.into())
    }
}

/// Reads the whole tree under `root`.
///
/// A hostile tree cannot cause endless work. Depths decrease on the way down. A node must start
/// with the file block that its parent's entry states. The entries of one level all state different
/// file blocks, so no node with entries is visited twice. The map takes about twice as much memory
/// as the nodes.
///
/// # Errors
/// [`Error::Corruption`], which names the inode and the block; and the errors of `nodes`.
pub fn load(root: &[u8; ROOT_BYTES], nodes: &dyn Nodes, limits: &Limits) -> Result<Map, Error> {
    let mut walk = Walk { nodes, limits, map: Builder::default() };
    walk.node(limits.root(root)?, END)?;
    Ok(walk.map.finish())
}

struct Walk<'a> {
    nodes: &'a dyn Nodes,
    limits: &'a Limits,
    map: Builder,
}

impl Walk<'_> {
    /// Adds all extents of `node`. The file blocks that `node` maps end before `to`. Recurses at
    /// most six calls deep.
    fn node(&mut self, node: Node, to: u32) -> Result<(), Error> {
        match node.entries {
            Entries::Leaf(extents) => extents.into_iter().for_each(|extent| self.map.push(extent)),
            Entries::Index(children) => {
                for (i, child) in children.iter().enumerate() {
                    let range = child_range(&children, i, to);
                    let (to, depth) = (range.end, node.depth - 1);
                    let below = self.limits.node(self.nodes, child.child, depth, range)?;
                    self.node(below, to)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the logical blocks of child `i`: from its start to the start of the next child. The last
/// child's blocks end at `to`, where the parent ends.
pub(crate) fn child_range(children: &[Index], i: usize, to: u32) -> Range<u32> {
    children[i].start.0..children.get(i + 1).map_or(to, |next| next.start.0)
}

// A planned change of a tree, and the bytes of the change after blocks are assigned to the new
// nodes.

/// Where a node is: in a block, or at an index in the plan's new nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    At(Block),
    New(usize),
}

impl Spot {
    /// Returns the block of the node. `new` contains the blocks of the plan's new nodes.
    pub(crate) fn block(self, new: &[Block]) -> Block {
        match self {
            Spot::At(block) => block,
            Spot::New(index) => new[index],
        }
    }
}

/// The entries of a planned node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Draft {
    Leaf(Vec<Extent>),
    Index(Vec<(FileBlock, Spot)>),
}

/// A planned node of an extent tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftNode {
    pub(crate) depth: u16,
    pub(crate) max: u16,
    pub(crate) generation: u32,
    pub(crate) entries: Draft,
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
    pub(crate) block_size: BlockSize,
    pub(crate) root: N,
    pub(crate) updates: Vec<(Block, N)>,
    pub(crate) new: Vec<N>,
    pub(crate) freed: Vec<Block>,
    pub(crate) covered: Range<u32>,
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
    pub(crate) fn of(node: Node) -> DraftNode {
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
    pub(crate) fn len(&self) -> usize {
        match self {
            Draft::Leaf(extents) => extents.len(),
            Draft::Index(children) => children.len(),
        }
    }

    /// Returns the first logical block.
    pub(crate) fn start(&self) -> Option<FileBlock> {
        match self {
            Draft::Leaf(extents) => extents.first().map(|extent| extent.start),
            Draft::Index(children) => children.first().map(|(start, _)| *start),
        }
    }

    /// Splits off all entries after the first `at` entries.
    pub(crate) fn split_off(&mut self, at: usize) -> Draft {
        match self {
            Draft::Leaf(extents) => Draft::Leaf(extents.split_off(at)),
            Draft::Index(children) => Draft::Index(children.split_off(at)),
        }
    }
}

// Bounds the cost of a change of mappings before it is planned.

/// The most that one plan can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Blocks to claim for new nodes.
    pub new: usize,
    /// Nodes to be written, including new nodes, but not the root in the inode. Each needs one
    /// credit.
    pub written: usize,
    /// Nodes to be freed. Each needs one revoke.
    pub freed: usize,
}

/// Returns the largest cost of one [`plan_replace`](super::plan_replace) on a tree with `depth`
/// levels of blocks. New nodes: one on each level, and two more if a full root moves into blocks.
/// Freed nodes: a plan that only unmaps blocks frees the nodes that become empty, which are on one
/// path. If the remaining entries fit into the root, it also frees the nodes of at most one other
/// path.
pub fn worst_case(depth: u16) -> Cost {
    let depth = usize::from(depth);
    Cost { new: depth + 2, written: 2 * depth + 2, freed: 2 * depth }
}
