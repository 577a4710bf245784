//! Loads the tree on disk into the map in memory.

use super::map::{Builder, Map};
use crate::error::Error;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::extent::{
    END, Entries, Expected, Index, Node, NodePosition, ROOT_BYTES, capacity,
};
use lanefs_ondisk::{Block, BlockSize, Corruption, Ino};
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
    pub(super) fn root(&self, bytes: &[u8; ROOT_BYTES]) -> Result<Node, Error> {
        self.decode(bytes, None, NodePosition::Root, 0..END)
    }

    /// Reads and decodes a node that is in a block.
    pub(super) fn node(
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
pub(super) fn child_range(children: &[Index], i: usize, to: u32) -> Range<u32> {
    children[i].start.0..children.get(i + 1).map_or(to, |next| next.start.0)
}
