//! Writes the changes of an image together.
//!
//! Which write must come before which, and why:
//! - *`needs_recovery` durable, then the transaction*: a program that finds the file system clean
//!   does not read the log. So if the order were reversed, such a program could take half-written
//!   blocks for complete ones after a crash.
//! - *transaction durable, then writes in place*: after a crash during the writes in place, a
//!   replay completes them.
//! - *all other blocks in place, then a changed superblock*: before e2fsck and the kernel replay
//!   the log, they check the descriptors of as many groups as the superblock states.
//! - *writes in place, log marked empty, then `needs_recovery` cleared*: if the superblock is
//!   clean, the log has nothing left to replay.

use crate::error::{Error, JournalNeed};
use crate::image::Image;
use lanefs_ext4::Expected;
use lanefs_ext4::log;
use lanefs_journal::{Log, Single};
use lanefs_mkfs::resize::backup;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::group_desc::GroupFlags;
use lanefs_ondisk::superblock::{
    OrphanEntries, Recovery, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use lanefs_ondisk::{Block, Group, Ino, Time};
use std::sync::Arc;

/// The moment at which the superblock on the device is marked as requiring a replay of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announced {
    /// Before the transaction, which is valid as soon as its commit block is written.
    Before,
    /// After the transaction, which is valid only once the superblock is written.
    After,
}

impl Image {
    /// Writes all changes. After a crash and a replay of the log, all of them are present, or none.
    ///
    /// # Errors
    /// [`Error::Journal`] if the changes do not fit into the log, or if there is no log and the
    /// changes go beyond the superblock; in both cases nothing was written. [`Error::Ext4`] if the
    /// device fails.
    pub fn commit(&mut self) -> Result<(), Error> {
        self.encode()?;
        let log = self.log()?;
        match log {
            _ if self.blocks.is_empty() && self.superblock.agrees_with(&self.found) => {
                self.write_primary(&self.superblock)?;
            }
            Some(log) => self.commit_to_log(log, Announced::Before)?,
            None if self.blocks.is_empty() => self.write_all_superblocks()?,
            None => {
                return Err(JournalNeed::Missing.into());
            }
        }
        self.note_written();
        Ok(())
    }

    /// Commits the changes to a new journal. The journal's inode is in place already; the
    /// superblock that names the journal is one of the changes. The transaction is valid once that
    /// superblock is written.
    pub(crate) fn commit_to_new_journal(&mut self) -> Result<(), Error> {
        self.encode()?;
        let log = log::find(&*self.device, &self.superblock, Ino::JOURNAL)?;
        self.commit_to_log(log, Announced::After)?;
        self.note_written();
        Ok(())
    }

    /// Commits changes that make the file system smaller. They become valid when the superblock is
    /// written.
    pub(crate) fn commit_smaller(&mut self) -> Result<(), Error> {
        self.encode()?;
        let log = self.log()?.expected()?;
        self.commit_to_log(log, Announced::After)?;
        self.note_written();
        Ok(())
    }

    /// Encodes all changes, except those of the superblock, into blocks.
    pub(crate) fn encode(&mut self) -> Result<(), Error> {
        self.encode_bitmaps()?;
        self.encode_descriptors()?;
        self.set_counts();
        Ok(())
    }

    /// Records that all changes are on the device.
    pub(crate) fn note_written(&mut self) {
        self.found = self.superblock.clone();
        self.described = self.descriptors.clone();
        self.blocks.clear();
        self.bitmaps.clear();
        self.inode_bitmaps.clear();
    }

    /// Returns the log of the file system as it is on the device.
    pub(crate) fn log(&self) -> Result<Option<Log>, Error> {
        Ok(log::locate(&*self.device, &self.found, self.journal.as_ref())?)
    }

    fn encode_bitmaps(&mut self) -> Result<(), Error> {
        let (geometry, checksums) = (self.geometry(), self.checksums());
        for (group, bitmap) in std::mem::take(&mut self.inode_bitmaps) {
            let mut bytes = vec![0; self.block_bytes()];
            let desc = self.descriptors.get_mut(group.0 as usize);
            let desc = desc.expected()?;
            desc.flags -= GroupFlags::INODE_UNINIT;
            desc.free_inodes = bitmap.count_clear();
            bitmap.encode_inodes_into(&mut bytes, desc, &geometry, checksums);
            self.blocks.insert(desc.inode_bitmap, bytes);
        }
        for (group, bitmap) in std::mem::take(&mut self.bitmaps) {
            let mut bytes = vec![0; self.block_bytes()];
            let desc = self.descriptors.get_mut(group.0 as usize);
            let desc = desc.expected()?;
            desc.flags -= GroupFlags::BLOCK_UNINIT;
            desc.free_blocks = bitmap.count_clear();
            bitmap.encode_blocks_into(&mut bytes, desc, &geometry, checksums);
            self.blocks.insert(desc.block_bitmap, bytes);
        }
        Ok(())
    }

    fn encode_descriptors(&mut self) -> Result<(), Error> {
        let (geometry, checksums) = (self.geometry(), self.checksums());
        let all = checksums != self.found.checksums();
        for index in self.found.geometry().desc_blocks()..geometry.desc_blocks() {
            let place = geometry.desc_block(index).expected()?;
            self.blocks.insert(place, vec![0; self.block_bytes()]);
        }
        let descriptors = self.descriptors.clone();
        for (group, desc) in (0u32..).map(Group).zip(descriptors) {
            if !all && self.described.get(group.0 as usize) == Some(&desc) {
                continue;
            }
            let (index, range) = geometry.desc_place(group).expected()?;
            let place = geometry.desc_block(index).expected()?;
            let mut bytes = self.block(place)?;
            let record = bytes.get_mut(range).expected()?;
            desc.encode_into(record, group, &geometry, checksums);
            self.blocks.insert(place, bytes);
        }
        Ok(())
    }

    fn set_counts(&mut self) {
        let clusters: u64 = self.descriptors.iter().map(|desc| u64::from(desc.free_blocks)).sum();
        let blocks = clusters << self.geometry().cluster_bits();
        let inodes: u64 = self.descriptors.iter().map(|desc| u64::from(desc.free_inodes)).sum();
        self.superblock.set_free_blocks(blocks);
        self.superblock.set_free_inodes(u32::try_from(inodes).unwrap_or(u32::MAX));
        self.superblock.set_write_time(seconds());
    }

    fn commit_to_log(&mut self, log: Log, announced: Announced) -> Result<(), Error> {
        let mut in_log = self.superblock.clone();
        set_recovery(&mut in_log, Recovery::Needed);
        let primary = self.geometry().super_block();
        let at = SUPERBLOCK_OFFSET as usize % self.block_bytes();
        let mut images = std::mem::take(&mut self.blocks);
        images.insert(primary, self.patched(images.get(&primary), primary, at, &in_log)?);
        if !self.superblock.agrees_with(&self.found) {
            for group in self.geometry().backups() {
                let place = self.geometry().group_first_block(group).unwrap_or_default();
                let backup = self.backup(group)?;
                images.insert(place, self.patched(images.get(&place), place, 0, &backup)?);
            }
        }
        // A replay refuses blocks beyond the present end of the file system. Such blocks need no
        // log, since nothing refers to them yet.
        let beyond = images.split_off(&Block(self.found.geometry().block_count()));
        let images: Vec<(Block, Arc<[u8]>)> =
            images.into_iter().map(|(block, bytes)| (block, bytes.into())).collect();
        let block_size = self.geometry().block_size();
        Single::check_fits(&*self.device, block_size, log.clone(), images.len()).map_err(
            |error| match error {
                lanefs_journal::Error::TooBig { credits, max } => {
                    Error::Journal(JournalNeed::TooLarge { needed: credits, most: max })
                }
                error => error.into(),
            },
        )?;
        for (block, bytes) in beyond {
            self.device.write_at(block.0 << block_size.bits(), &bytes)?;
        }
        if announced == Announced::Before {
            let mut before = self.found.clone();
            set_recovery(&mut before, Recovery::Needed);
            self.write_primary(&before)?;
        }
        let mut committed = Single::commit(self.device.clone(), block_size, log, images)?;
        match announced {
            Announced::After => self.write_primary(&in_log)?,
            Announced::Before if !in_log.agrees_with(&self.found) => {
                committed.checkpoint_except(primary)?;
                self.write_half(&in_log)?;
            }
            Announced::Before => {}
        }
        committed.checkpoint()?;
        self.write_primary(&self.superblock)
    }

    /// Returns a block with a superblock written into it.
    fn patched(
        &self,
        changed: Option<&Vec<u8>>,
        block: Block,
        at: usize,
        superblock: &Superblock,
    ) -> Result<Vec<u8>, Error> {
        let mut bytes = match changed {
            Some(bytes) => bytes.clone(),
            None => self.block(block)?,
        };
        let record = bytes.get_mut(at..at + SUPERBLOCK_SIZE).expected()?;
        record.copy_from_slice(&superblock.encode());
        Ok(bytes)
    }

    /// Writes the superblock in place, durably.
    pub(crate) fn write_primary(&self, superblock: &Superblock) -> Result<(), Error> {
        self.device.write_at(SUPERBLOCK_OFFSET, &superblock.encode())?;
        Ok(self.device.flush()?)
    }

    /// Writes one of the superblock's two sectors, before the whole superblock is written. The
    /// sector is chosen so that after a crash, even one that tears the later write, the superblock
    /// never has a feature without the field that this feature needs. A torn superblock is accepted
    /// if its fields have valid values, because the log has the new superblock.
    fn write_half(&self, next: &Superblock) -> Result<(), Error> {
        let half = SUPERBLOCK_SIZE / 2;
        if self.device.alignment() as usize > half {
            return Ok(());
        }
        let mut before = self.found.clone();
        set_recovery(&mut before, Recovery::Needed);
        let (before, after) = (before.encode(), next.encode());
        let ((old_first, _), (first, second)) = (before.split_at(half), after.split_at(half));
        let (at, bytes) = match Superblock::decode_torn(&[old_first, second].concat()) {
            Ok(_) => (half, second),
            Err(_) => (0, first),
        };
        self.device.write_at(SUPERBLOCK_OFFSET + at as u64, bytes)?;
        Ok(self.device.flush()?)
    }

    /// Writes the superblock and its backups: one backup before the primary superblock and the
    /// others after it. With two or more backups, an intact backup agrees at every moment with the
    /// primary superblock, whether the primary is the old or the new one. With a single backup, the
    /// primary is written first, in halves if these agree with the old backup. If they do not, the
    /// primary or the backup is always intact: the backup is durable before the write of the
    /// primary starts.
    pub(crate) fn write_all_superblocks(&self) -> Result<(), Error> {
        let geometry = self.geometry();
        let mut backups = geometry.backups();
        if let (Some(only), None) = (backups.next(), backups.next())
            && self.write_in_halves()?
        {
            self.write_backup(only)?;
            return Ok(self.device.flush()?);
        }
        let mut backups = geometry.backups();
        if let Some(first) = backups.next() {
            self.write_backup(first)?;
        }
        self.device.flush()?;
        self.write_primary(&self.superblock)?;
        for group in backups {
            self.write_backup(group)?;
        }
        Ok(self.device.flush()?)
    }

    /// Writes the two sectors of the superblock one after the other, durably, so that the torn
    /// superblock between the two writes agrees with the old one. Returns `false`, and writes
    /// nothing, if in neither order it does.
    fn write_in_halves(&self) -> Result<bool, Error> {
        let half = SUPERBLOCK_SIZE / 2;
        let (before, after) = (self.found.encode(), self.superblock.encode());
        let ((old_first, old_second), (first, second)) =
            (before.split_at(half), after.split_at(half));
        let agrees = |torn: [&[u8]; 2]| {
            Superblock::decode_torn(&torn.concat()).is_ok_and(|torn| torn.agrees_with(&self.found))
        };
        let order = match () {
            () if self.device.alignment() as usize > half => return Ok(false),
            () if agrees([old_first, second]) => [(half, second), (0, first)],
            () if agrees([first, old_second]) => [(0, first), (half, second)],
            () => return Ok(false),
        };
        for (at, bytes) in order {
            self.device.write_at(SUPERBLOCK_OFFSET + at as u64, bytes)?;
            self.device.flush()?;
        }
        Ok(true)
    }

    fn write_backup(&self, group: Group) -> Result<(), Error> {
        let place = self.geometry().group_first_block(group).unwrap_or_default();
        let offset = place.0 << self.geometry().block_size().bits();
        Ok(self.device.write_at(offset, &self.backup(group)?.encode())?)
    }

    /// Returns the superblock as a backup stores it.
    fn backup(&self, group: Group) -> Result<Superblock, Error> {
        Ok(backup(&self.superblock, group)?)
    }

    /// Returns a group's block bitmap for changes.
    pub(crate) fn bitmap_mut(&mut self, group: Group) -> Result<&mut Bitmap, Error> {
        let bitmap = self.block_bitmap(group)?;
        Ok(self.bitmaps.entry(group).or_insert(bitmap))
    }
}

fn set_recovery(superblock: &mut Superblock, recovery: Recovery) {
    let present = superblock.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    let orphans = if present { OrphanEntries::Present } else { OrphanEntries::Absent };
    superblock.set_dirty_features(recovery, orphans);
    debug_assert!(
        superblock.features().incompat.contains(Incompat::RECOVER)
            == (recovery == Recovery::Needed)
    );
}

pub(crate) fn seconds() -> u64 {
    Time::now().secs as u64
}
