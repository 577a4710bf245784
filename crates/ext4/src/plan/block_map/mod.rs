//! Plans changes of indirect block maps, the mappings of ext2 and ext3.
//!
//! As with extent trees, [`load`] builds the [`Map`](super::extent::Map) of a file from its nodes,
//! which are indirect blocks. [`plan_replace`] computes which nodes are changed, added and freed by
//! a change of mappings. A block map has no unwritten blocks, so all mapped blocks contain data.

mod load;
mod plan;
#[cfg(test)]
mod tests;

pub use load::load;
pub use plan::{Plan, plan_replace};
