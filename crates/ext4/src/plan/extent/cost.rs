//! How much a change of mappings may need, before it is planned.

/// The most that one plan can do to a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Blocks to claim for new nodes.
    pub new: usize,
    /// Nodes written, new ones included, the root in the inode not: a credit for each.
    pub written: usize,
    /// Nodes freed: a revoke for each.
    pub freed: usize,
}

/// The most that one [`plan_replace`](super::plan_replace) on a tree of `depth` levels of blocks
/// can need: one more node on each level, and two when a full root moves into blocks. An append
/// needs that at worst; freeing empties one path, and may then pull what is left into the root.
pub fn worst_case(depth: u16) -> Cost {
    let depth = usize::from(depth);
    Cost { new: depth + 2, written: 2 * depth + 2, freed: 2 * depth }
}
