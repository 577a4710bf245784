//! Plans changes of directories. The planners use no locks and no journal, and do no I/O
//! themselves.
//!
//! A planner reads the blocks of a directory through [`DirBlocks`] and returns a [`Plan`]: new
//! contents of existing blocks, and blocks to append. The caller holds the directory's operation
//! lock from the first read until the plan is applied. The caller first claims space for the
//! appended blocks. Then, inside a handle, it replaces the contents of the blocks. The committer
//! computes the checksums: it calls [`seal`] once per block and commit.
//!
//! A directory of one block that becomes full is indexed if the file system has `dir_index`; a
//! directory that already has several linear blocks stays linear, as in the kernel.
//!
//! # What is in a directory block?
//!
//! A directory block is covered by a chain of records. With `metadata_csum` the block ends with a
//! tail of 12 bytes, which has the form of one more record. `dirent::entries` checks all records,
//! once for each block that is read from disk. A removed name is overwritten with zeros. Without
//! checksums an empty leaf looks like an index node; only the path through the index distinguishes
//! the two.
//!
//! # How does an index grow?
//!
//! A full leaf is first compacted, then split so that both halves have about the same size. If this
//! separates names with the same hash, the low bit of the second leaf's index entry is set, and
//! every look-up of that hash reads both leaves. A full node is split in halves. If the root is
//! full, a level of nodes is added below it. There is at most one such level, or two with
//! `large_dir`. If no level can be added, the directory is full. A scan fails if it meets more
//! leaves than the directory has blocks.

mod blocks;
mod find;
mod index;
mod insert;
mod names;
mod read;

pub use crate::dir::blocks::{
    DirBlocks, DirContext, Indexing, MOST_APPENDED, MOST_UPDATED, Plan, has_names, new_directory,
    seal, verify,
};
pub use crate::dir::find::{Found, Look, find, find_by, find_dot, find_in, look_for, room_for};
pub use crate::dir::index::Descent;
pub use crate::dir::insert::{locate_room, plan_insert, plan_room};
pub use crate::dir::names::NameIndex;
pub use crate::dir::read::{
    DirEntry, cookie_of, find_anywhere, hash_at, hasher_of, in_hash_order, is_empty, read_from,
};

#[cfg(test)]
mod tests;
