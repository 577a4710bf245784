//! Repairs orphans, which are inodes that a mount after a crash would delete or truncate.

use super::inode_offsets::{DTIME, LINKS};
use super::mender::{Mender, put16, put32};
use crate::mapping::Runs;
use crate::place::Place;
use crate::record::Record;
use crate::report::Finding;
use lanefs_ondisk::features::{Compat, RoCompat};
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::{Block, Ino};
use std::collections::BTreeSet;

impl Mender<'_> {
    /// Deletes or truncates all orphans, and empties the orphan list and the orphan file.
    pub fn mend_orphans(&mut self, _found: &[Finding]) {
        let file = self.run.volume.superblock().orphan_file();
        let blocks = file.map(|ino| self.orphan_blocks(ino)).unwrap_or_default();
        let geometry = self.run.volume.geometry;
        for ino in self.run.orphans.iter().copied().collect::<BTreeSet<_>>() {
            self.end_orphan(ino);
        }
        let empty = OrphanBlock::empty(geometry.block_size());
        // The blocks of a damaged orphan file may belong to another file.
        let is_foreign = blocks.iter().any(|(at, block, _)| block.is_none() && self.is_shared(*at));
        match file.filter(|_| is_foreign) {
            Some(file) => self.remove_orphan_file(file),
            None => {
                for (at, _, seed) in blocks {
                    self.write_block(at, &empty.encode(at, seed));
                }
            }
        }
        self.edit_superblock(|raw| {
            raw.s_last_orphan.set(0);
            let present = RoCompat::ORPHAN_PRESENT.bits();
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !present);
        });
        self.act(Place::OrphanList, "emptied: its inodes are deleted or truncated");
    }

    /// Removes the orphan file. Without it, orphans are kept in the orphan list.
    pub fn remove_orphan_file(&mut self, ino: Ino) {
        self.edit_superblock(|raw| {
            let file = Compat::ORPHAN_FILE.bits();
            raw.s_feature_compat.set(raw.s_feature_compat.get() & !file);
            let present = RoCompat::ORPHAN_PRESENT.bits();
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !present);
            raw.s_orphan_file_inum.set(0);
        });
        self.clear_inode(ino, "removed: the orphan file is damaged");
    }

    fn orphan_blocks(&self, ino: Ino) -> Vec<(Block, Option<OrphanBlock>, OrphanSeed)> {
        let Some((_, record)) = self.read_inode(ino) else { return Vec::new() };
        let seed = OrphanSeed::new(self.run.volume.checksums, ino, record.generation);
        let mut blocks = Vec::new();
        for extent in Runs::of(self.run.volume, ino, &record).extents() {
            for at in (0..u64::from(extent.len)).map(|n| Block(extent.block.0 + n)) {
                let Some(bytes) = self.read_block(at) else { continue };
                blocks.push((at, OrphanBlock::decode(&bytes, at, seed).ok(), seed));
            }
        }
        blocks
    }

    fn end_orphan(&mut self, ino: Ino) {
        let Some((mut bytes, record)) = self.read_inode(ino) else { return };
        if record.links > 0 {
            self.truncate(ino, &mut bytes, &record);
            put32(&mut bytes, DTIME, 0);
        } else if self.fast.uses_inode(ino) {
            // A change that is made later may give it a name.
            put16(&mut bytes, LINKS, 1);
            put32(&mut bytes, DTIME, 0);
        } else if record.mode != 0 {
            put16(&mut bytes, LINKS, 0);
            put32(&mut bytes, DTIME, self.time());
        }
        self.write_inode(ino, bytes);
    }

    /// Removes the blocks after the end of a file.
    fn truncate(&mut self, ino: Ino, bytes: &mut [u8], record: &Record) {
        if !record.maps_blocks() || record.is_directory() {
            return;
        }
        let blocks = record.size().div_ceil(self.run.volume.block_bytes() as u64);
        let end = u32::try_from(blocks).unwrap_or(u32::MAX);
        let mut salvaged = self.salvage(ino, record);
        if salvaged.extents.iter().all(|extent| extent.end() <= end) {
            return;
        }
        salvaged.extents = salvaged.extents.iter().filter_map(|e| e.clip(&(0..end))).collect();
        self.rebuild(ino, bytes, salvaged);
    }
}
