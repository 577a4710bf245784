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

mod draft;
mod inodes;
mod names;
mod node;

use crate::error::Error;
use crate::error::Expected;
use crate::fast_commit::inodes::Inodes;
use draft::{Draft, refused};
pub use draft::{Images, Read};
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::jbd2::FastChange;
use lanefs_ondisk::superblock::{OrphanEntries, Recovery, SUPERBLOCK_OFFSET, Superblock};
use lanefs_ondisk::{Block, FileType, Ino};

/// Returns the blocks that `changes` change, in order, with their new contents. `superblock` is the
/// superblock after the last transaction; `own` contains the block runs of the log, and the MMP
/// block.
///
/// # Errors
/// [`Error::Unsupported`] for a feature or a change that Lanefs cannot replay;
/// [`Error::Corruption`] and [`Error::Device`] from reading the file system or applying the
/// changes.
pub fn images(
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

// The last part of a replay: encodes inode records, bitmaps, descriptors and the superblock.

impl Inodes<'_> {
    /// Encodes all changes.
    pub(crate) fn finish(mut self) -> Result<Images, Error> {
        let first = self.update_orphans()?;
        let Inodes { mut draft, mut nodes, .. } = self;
        for node in nodes.values_mut() {
            let is_directory = |inode: &Option<Inode>| {
                inode.as_ref().and_then(Inode::file_type) == Some(FileType::Directory)
            };
            let more = i64::from(is_directory(&node.now)) - i64::from(is_directory(&node.before));
            if more != 0 {
                draft.count_directories(node.ino, more)?;
            }
            node.store(&mut draft)?;
        }
        draft.encode_groups()?;
        if first != draft.superblock.last_orphan() {
            draft.set_last_orphan(first)?;
        }
        draft.into_images()
    }
}

impl Draft<'_> {
    fn set_last_orphan(&mut self, first: Option<Ino>) -> Result<(), Error> {
        let mut superblock = self.superblock.clone();
        let has_entries = superblock.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        let entries = if has_entries { OrphanEntries::Present } else { OrphanEntries::Absent };
        superblock.set_dirty_features(Recovery::Needed, entries);
        superblock.set_last_orphan(first);
        let place = self.geometry.super_block();
        let mut bytes = self.block(place)?.to_vec();
        let record = superblock.encode();
        let at = SUPERBLOCK_OFFSET as usize % self.block_bytes();
        bytes.get_mut(at..at + record.len()).expected()?.copy_from_slice(&record);
        self.put(place, bytes.into())
    }
}
