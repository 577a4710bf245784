//! Keeps objects in memory: inodes, metadata blocks, inode-table blocks, the orphan list. This
//! module loads, holds and evicts objects, and captures them for a commit.
//!
//! # Which objects does a transaction hold?
//!
//! - An `Inode`, protected by its state guard. At commit its record is patched into its block of
//!   the inode table.
//! - A group of `alloc::Groups`, protected by a guard of its own. Its image consists of a whole
//!   block for each of the two bitmaps, and of the descriptor, which is patched into a block of
//!   descriptors.
//! - A `MetaBlock`, which is a metadata block of one owner, protected by its state guard. Its image
//!   is the whole block with its checksum. An operation that changes a `MetaBlock` *replaces* its
//!   `Arc<[u8]>`, so a captured image is a clone of the `Arc`.
//! - The orphan list, in which each lane's part has a guard of its own. At commit the list is
//!   chained through the deletion times of the inodes.
//!
//! The superblock's counts are sums over the captured groups, so every transaction that changes a
//! group also contains the superblock.
//!
//! # One object per number
//!
//! Two objects for one inode would lose each other's changes. So each inode, metadata block and
//! table block is found in a map and has a hold word (`lanefs_lanes::Hold`). A look-up takes no
//! lock: it adds a reference, or starts over if it finds that the object is dead. Eviction marks an
//! unreferenced object as dead, under the object's guard. Only one thread at a time loads the
//! object with a given number, under a loader lock (`crate::cache`).
//!
//! - The link count of a nameless inode becomes zero before the object becomes dead, so that no
//!   look-up loads the inode again. When the last reference to a nameless inode is dropped, the
//!   inode is deleted (`ops/truncate.rs`).
//! - A new inode gets a number only if neither a live object in memory nor a record with links has
//!   that number. If such an object or record exists, the bitmap is wrong: the create fails with a
//!   corruption error, and the number stays taken while the file system is mounted.
//!
//! # Which objects stay in memory?
//!
//! `pressure` says which part of the memory cap each cache gets, and when objects are evicted. An
//! object stays in memory as long as information would be lost by evicting it:
//!
//! - An inode stays until the last transaction that changed it is settled, and while it is an
//!   orphan. A reloaded inode would not know which commit an fsync must wait for, whether the tail
//!   block must still be zeroed, and where the inode is recorded as an orphan. The look-ups of a
//!   FUSE kernel keep only an inode without names; for others, `mount_ref::Known` keeps their
//!   count.
//! - A metadata block stays until the last transaction that changed it is settled. Until then, the
//!   object may hold the only copy of its image. The object also knows the transaction that
//!   allocated the block: if the same transaction frees the block, the block needs no revoke.
//! - An inode-table block stays while one of its inodes is in memory. It also stays until the last
//!   transaction that was charged a credit for the block is settled.
//!
//! # What is zeroed, and when?
//!
//! - *Inode tables.* With descriptor checksums, the unused part of a table (`itable_unused`) may
//!   hold garbage, which counts as zeros. When more of the table comes into use, the committer
//!   writes all blocks of the added part, not only those whose inodes changed.
//! - *Truncated tails.* `set_size` leaves the bytes behind the new end as they are. After the
//!   truncation has become durable, `Deferred::ZeroTail` zeroes them, because other systems rely on
//!   zeros there. An operation that grows the file waits until this is done. The operation also
//!   zeroes the bytes between the old end and the new data, because another system may have left
//!   nonzero bytes there. The last block of an encrypted file is replaced by a copy with zeros
//!   (`ops/truncate.rs`).
//!
//! # Damage found by Apply
//!
//! Apply is the last step of an operation: it changes the objects under a handle, and cannot fail.
//! If it finds something wrong, such as a bitmap bit that is clear already, the file system on disk
//! was damaged before. `note_error` records the damage in the superblock and makes the mount
//! read-only, unless the option `errors=continue` is given.

pub(crate) mod commit;
pub(crate) mod dirty;
pub(crate) mod fast_commits;
pub(crate) mod fs;
pub(crate) mod inode;
pub(crate) mod meta;
pub(crate) mod mount_ref;
pub(crate) mod orphan;
pub(crate) mod state;
pub(crate) mod table;
