//! Adds and removes the orphan file, each in one transaction.

use crate::commit::seconds;
use crate::error::Error;
use crate::image::Image;
use lanefs_ondisk::features::{Compat, RoCompat};
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::{Block, Group};

impl Image {
    /// Frees the orphan file, if there is one, and returns its length in blocks. The file has no
    /// entries, since the image is clean. Called before the journal is removed, because a file
    /// system without a journal must not have an orphan file.
    pub(crate) fn remove_orphan_file(&mut self) -> Result<Option<u32>, Error> {
        let Some(ino) = self.superblock.orphan_file() else { return Ok(None) };
        let inode = self.inode(ino)?;
        let blocks = inode.size >> self.geometry().block_size().bits();
        self.release_all(ino, &inode)?;
        self.release_inode(ino)?;
        let mut blank = Inode::zeroed(self.superblock.extra_isize());
        blank.dtime = u32::try_from(seconds()).unwrap_or(u32::MAX);
        self.put_inode(ino, &blank)?;
        self.edit(|raw| {
            raw.s_feature_compat.set(raw.s_feature_compat.get() & !Compat::ORPHAN_FILE.bits());
            let present = RoCompat::ORPHAN_PRESENT.bits();
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !present);
            raw.s_orphan_file_inum.set(0);
        })?;
        self.commit()?;
        Ok(u32::try_from(blocks).ok())
    }

    /// Adds an orphan file of `blocks` blocks; does nothing for `None`.
    pub(crate) fn add_orphan_file(&mut self, blocks: Option<u32>) -> Result<(), Error> {
        let Some(blocks) = blocks else { return Ok(()) };
        let groups = self.groups_below_limit();
        let ino = self.claim_inode(Group(groups))?;
        let runs = self.claim(Block(0), blocks)?;
        let inode = self.file_inode(ino, &runs, blocks)?;
        let seed = OrphanSeed::new(self.checksums(), ino, inode.generation);
        let empty = OrphanBlock::empty(self.geometry().block_size());
        for (start, len) in runs {
            for place in (start.0..start.0 + u64::from(len)).map(Block) {
                self.blocks.insert(place, empty.encode(place, seed));
            }
        }
        let blank = vec![0; self.geometry().inode_size()];
        self.put_record(ino, blank)?;
        self.put_inode(ino, &inode)?;
        self.edit(|raw| {
            raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::ORPHAN_FILE.bits());
            raw.s_orphan_file_inum.set(ino.0);
        })?;
        self.commit()
    }

    /// Returns how many groups begin before block `self.limit`, but at least 1. If no limit is set,
    /// returns the number of all groups.
    fn groups_below_limit(&self) -> u32 {
        let geometry = self.geometry();
        let last = self.limit.map(|limit| Block(limit.saturating_sub(1)));
        let group = last.and_then(|last| geometry.group_of(last));
        group.map_or(geometry.group_count(), |(group, _)| group.0 + 1)
    }
}
