//! Plans changes of the mappings from file blocks to device blocks.
//!
//! The mappings have two forms: the tree on disk, whose nodes are `lanefs_ondisk::extent::Node`s,
//! and the [`Map`], which has all mappings of one file in memory, so that readers need not read the
//! tree. [`load`] builds the map from the tree. [`plan_replace`] computes which nodes are changed,
//! added and freed by a change of mappings. This module does not write, lock or claim: the caller
//! reads nodes through [`Nodes`], claims [`Plan::nodes_needed`] blocks, and passes the result of
//! [`Plan::place`] to its journal handle.
//!
//! A `Map` is never modified: a change makes a new map. So a reader can use the map that it found
//! as long as its reader pin lasts. One plan changes one leaf, so [`worst_case`] tells beforehand
//! how many blocks it needs. As in the kernel and e2fsck, a key in a parent must be the first block
//! of its child, and the keys of one level differ. So no node with entries can be reached by two
//! paths, and the work for a hostile tree is bounded by its number of nodes.
//!
//! Logical blocks in ranges are plain `u32` numbers below [`END`], a block number that no file
//! reaches.

mod map;
mod plan;
mod tree;

pub(crate) use crate::extent::map::{Builder, assert_within};
pub use crate::extent::map::{Iter, Map, Mapping, overlapping};
pub use crate::extent::plan::{Layout, node_blocks, plan_replace};
pub(crate) use crate::extent::tree::Spot;
pub use crate::extent::tree::{Cost, Encode, Limits, Nodes, Placed, Plan, load, worst_case};
pub use lanefs_ondisk::extent::{EMPTY_ROOT, END, Extent, ROOT_BYTES, State};

#[cfg(test)]
mod tests;
