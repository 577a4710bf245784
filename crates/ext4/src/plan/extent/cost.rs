//! Bounds the cost of a change of mappings before it is planned.

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
