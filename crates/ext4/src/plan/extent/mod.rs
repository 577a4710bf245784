//! Which blocks of the device hold which blocks of a file.
//!
//! Two forms of one thing: the tree on disk, whose nodes are `lanefs_ondisk::extent::Node`s, and
//! [`Map`], all mappings of one file in memory, which readers use without touching the tree.
//! [`load`] makes the map from the tree; [`plan_replace`] says which nodes a change of mappings
//! changes, adds and frees. Nothing here writes, locks or claims: the caller reads nodes through
//! [`Nodes`], claims [`Plan::nodes_needed`] blocks, and hands what [`Plan::place`] gives to its
//! journal handle.
//!
//! Logical blocks are plain `u32` in ranges, below [`END`], which no file reaches.

mod cost;
mod load;
mod map;
mod place;
mod plan;
mod splice;
#[cfg(test)]
mod tests;

pub use cost::{Cost, worst_case};
pub use lanefs_ondisk::extent::{END, Extent, ROOT_BYTES, State};
pub use load::{Limits, Nodes, load};
pub use map::{Iter, Map, Mapping, overlapping};
pub use place::{Placed, Plan, empty_root};
pub use plan::plan_replace;
