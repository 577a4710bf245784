//! Objects in memory: inodes, metadata blocks, inode-table blocks, the orphan list; how they are
//! loaded, held, evicted and captured for a commit.

pub(crate) mod commit;
pub(crate) mod crowd;
pub(crate) mod home;
pub(crate) mod inode;
pub(crate) mod inodes;
pub(crate) mod meta;
pub(crate) mod one_lock;
pub(crate) mod orphan;
pub(crate) mod pressure;
pub(crate) mod record;
pub(crate) mod superblock;
pub(crate) mod table;
pub(crate) mod window;
