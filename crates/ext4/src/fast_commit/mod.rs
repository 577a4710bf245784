//! Replays fast commits: computes which blocks they change, and the new contents. Nothing is
//! written here.
//!
//! Instead of blocks, a fast commit contains inode fields, mappings and names. These changes are
//! applied to the file system as the last transaction left it, in this order:
//! 1. `inodes`: the fields and the mappings of all inodes, in the order of the changes. If an inode
//!    number was reused, only the last inode with this number counts. If an older inode had the
//!    number before the fast commits, the blocks of that older inode are freed.
//! 2. `trees`: first the blocks that the files now have are marked in the bitmaps, so that no new
//!    node or directory block takes one of them. Then the extent trees are changed.
//! 3. `names`: names are added and removed, in the order of the changes. An inode's link count is
//!    computed from its last record and from the names that are added and removed after that
//!    record.
//! 4. `finish`: inodes without links become orphans, which the mount deletes. Records, bitmaps and
//!    descriptors are encoded.
//!
//! The result is one transaction. So after a crash either all fast commits are still in the log, or
//! their whole effect is on disk.

mod blocks;
mod finish;
mod groups;
mod inodes;
mod names;
mod node;
mod orphans;
mod refusal;
mod trees;

use crate::error::Error;
use blocks::{Draft, Images, Read};
use inodes::Inodes;
use lanefs_ondisk::Block;
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::jbd2::FastChange;
use lanefs_ondisk::superblock::Superblock;
use refusal::refused;

/// Returns the blocks that `changes` change, in order, with their new contents. `superblock` is the
/// superblock after the last transaction; `own` contains the block runs of the log, and the MMP
/// block.
///
/// # Errors
/// [`Error::Unsupported`] for a feature or a change that Lanefs cannot replay;
/// [`Error::Corruption`] and [`Error::Device`] from reading the file system or applying the
/// changes.
pub(crate) fn images(
    superblock: &Superblock,
    read: Read<'_>,
    own: &[(Block, u32)],
    changes: &[FastChange],
) -> Result<Images, Error> {
    check_features(superblock)?;
    let draft = Draft::new(superblock, read, own)?;
    let mut inodes = Inodes::new(draft);
    for (n, change) in changes.iter().enumerate() {
        inodes.apply(n, change)?;
    }
    inodes.update_trees()?;
    for (n, change) in changes.iter().enumerate() {
        inodes.apply_name(n, change)?;
    }
    inodes.finish()
}

fn check_features(superblock: &Superblock) -> Result<(), Error> {
    let features = superblock.features();
    let mut with = Vec::new();
    for (feature, name) in [
        (RoCompat::BIGALLOC, "bigalloc"),
        (RoCompat::QUOTA, "quota"),
        (RoCompat::SHARED_BLOCKS, "shared_blocks"),
    ] {
        if features.ro_compat.contains(feature) {
            with.push(name);
        }
    }
    for (feature, name) in [(Incompat::ENCRYPT, "encrypt"), (Incompat::CASEFOLD, "casefold")] {
        if features.incompat.contains(feature) {
            with.push(name);
        }
    }
    match with.as_slice() {
        [] => Ok(()),
        with => Err(refused(&format!("together with {}", with.join(", ")))),
    }
}
