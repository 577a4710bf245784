//! The last part of a replay: encodes inode records, bitmaps, descriptors and the superblock.

use super::blocks::{Draft, Images};
use super::inodes::Inodes;
use crate::error::Error;
use crate::object::superblock::SUPERBLOCK;
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::superblock::{OrphanEntries, Recovery};
use lanefs_ondisk::{FileType, Ino};

impl Inodes<'_> {
    /// Encodes all changes.
    pub(super) fn finish(mut self) -> Result<Images, Error> {
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
        let at = SUPERBLOCK.start % self.block_bytes();
        let record = bytes.get_mut(at..at + SUPERBLOCK.len()).ok_or(Error::Stale)?;
        record.copy_from_slice(&superblock.encode());
        self.put(place, bytes.into())
    }
}
