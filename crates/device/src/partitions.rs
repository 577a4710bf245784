//! Disks: their partition tables, the partition that a name chooses, and the growth of a partition.
//!
//! Both tables are decoded here, with bounds on every number: docs/dependencies.md says why no
//! library does it.

mod ext4;
mod gpt;
mod grow;
mod mbr;
mod partition;
mod table;
mod which;

pub use ext4::Ext4;
pub use grow::PartitionGrowth;
pub use partition::{BadTable, Partition, PartitionTable, SECTOR, TableCopy, TableKind};
pub use which::{PartitionError, Pick, file_of};

pub(crate) use which::{Place, Which, before_at, split};
