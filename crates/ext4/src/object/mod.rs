//! Keeps objects in memory (inodes, metadata blocks, inode-table blocks, the orphan list): how they
//! are loaded, held, evicted and captured for a commit.

pub(crate) mod commit;
pub(crate) mod contended;
pub(crate) mod dirty;
pub(crate) mod growth;
pub(crate) mod inode;
pub(crate) mod inodes;
pub(crate) mod load;
pub(crate) mod map_slot;
pub(crate) mod meta;
pub(crate) mod mount_ref;
pub(crate) mod name_cache;
pub(crate) mod objects;
pub(crate) mod orphan;
pub(crate) mod pressure;
pub(crate) mod reclaim;
pub(crate) mod record;
pub(crate) mod state;
pub(crate) mod superblock;
pub(crate) mod table;
pub(crate) mod totals;
pub(crate) mod window;
