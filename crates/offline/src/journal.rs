//! Adds and removes the journal.
//!
//! - *Adding* writes, in this order: an empty log in free blocks; the journal's inode; in the new
//!   log, a transaction with all other changes; the superblock, which then names the journal and
//!   requests a replay.
//! - *Removing* writes, in this order: the journal's inode, which gets the time of the removal; the
//!   superblock, which no longer names a journal and is not clean; the bitmaps; the superblock,
//!   marked clean; the inode, cleared.
//!
//! During an addition or a removal, the inode is in use for some time while the superblock names no
//! journal. That is harmless, since the inode is reserved, and no program reads it unless the
//! superblock names it. After a crash, [`crate::recover`] removes the remains: if the superblock is
//! not clean, the recovery first frees the journal's blocks; in any case it clears the inode.
//! Freeing the blocks is safe only if no other program has written to the file system since the
//! crash. Equal times in the inode and in the superblock show that none has.

use crate::commit::seconds;
use crate::error::{Error, Refusal, Unchecked};
use crate::image::Image;
use lanefs_ext4::log;
use lanefs_mkfs::JournalLength;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::jbd2::JournalSuperblock;
use lanefs_ondisk::superblock::{JournalPlace, State};
use lanefs_ondisk::{Block, Corruption, Group, Ino, Time};

/// The value of `s_jnl_backup_type` for a copy of the journal inode's block field:
/// `EXT3_JNL_BACKUP_BLOCKS`.
const BACKUP_BLOCKS: u8 = 1;
/// The smallest number of blocks of a journal: `JBD2_MIN_JOURNAL_BLOCKS`.
const MIN_BLOCKS: u32 = 1024;

impl Image {
    /// Returns whether the journal's inode is in use although the superblock names no journal.
    pub(crate) fn has_half_journal(&self) -> Result<bool, Error> {
        if self.superblock.journal().is_some() {
            return Ok(false);
        }
        let inode = self.inode(Ino::JOURNAL)?;
        Ok(!inode.is_blank() || inode.block != [0; 60])
    }

    /// Completes or undoes an interrupted addition or removal of the journal. If the superblock has
    /// lost only the feature, and still names the journal's inode, the journal is removed whole.
    ///
    /// # Errors
    /// [`Error::NeedsCheck`] if another program has written to the file system since the
    /// interruption, or if the superblock names the journal although the file system is not clean
    /// or may have orphans in its orphan file.
    pub(crate) fn end_half_journal(&mut self) -> Result<(), Error> {
        let inode = self.inode(Ino::JOURNAL)?;
        let is_named = self.superblock.raw().s_journal_inum.get() != 0;
        let asks_replay = self.superblock.features().incompat.contains(Incompat::RECOVER);
        let is_clean = self.superblock.state().contains(State::VALID) && !asks_replay;
        if is_named {
            // The orphan file is freed too, so it must have no entries.
            let ro_compat = self.superblock.features().ro_compat;
            return if is_clean && !ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
                self.remove_named_journal()
            } else {
                Err(Unchecked::HalfJournal.into())
            };
        }
        if !is_clean {
            if u64::try_from(inode.mtime.secs) != Ok(self.superblock.write_time()) {
                return Err(Unchecked::HalfJournal.into());
            }
            self.free_old_journal(&inode)?;
        }
        self.clear_journal_inode()
    }

    /// Gives an empty journal its feature back, and then removes it as a whole, with the orphan file.
    fn remove_named_journal(&mut self) -> Result<(), Error> {
        let journal = Compat::HAS_JOURNAL.bits();
        self.edit(|raw| raw.s_feature_compat.set(raw.s_feature_compat.get() | journal))?;
        let names_it = self.superblock.journal() == Some(JournalPlace::Inode(Ino::JOURNAL));
        let log = log::find(&*self.device, &self.superblock, Ino::JOURNAL);
        if !names_it || !log.is_ok_and(|log| log.superblock.start().is_none()) {
            return Err(Unchecked::HalfJournal.into());
        }
        self.write_all_superblocks()?;
        self.note_written();
        self.remove_journal()
    }

    /// Clears the journal's inode in place. The write changes one record, which lies in one sector.
    fn clear_journal_inode(&mut self) -> Result<(), Error> {
        let blank = Inode::zeroed(self.superblock.extra_isize());
        self.put_inode(Ino::JOURNAL, &blank)?;
        self.write_blocks_in_place()
    }

    /// Writes the changed blocks in place, durably, without the log.
    pub(crate) fn write_blocks_in_place(&mut self) -> Result<(), Error> {
        let bits = self.geometry().block_size().bits();
        for (block, bytes) in std::mem::take(&mut self.blocks) {
            self.device.write_at(block.0 << bits, &bytes)?;
        }
        Ok(self.device.flush()?)
    }
}

/// The wanted length of a journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalSize {
    /// Blocks of the log. `None` means as many as the present journal has or, without a journal, as
    /// many as mke2fs chooses.
    pub blocks: Option<u32>,
    /// Further blocks for fast commits. `None` means as many as mke2fs chooses, or 0 without the
    /// feature `fast_commit`.
    pub fast_commit_blocks: Option<u32>,
}

/// Adds a journal.
impl Image {
    /// Adds a journal. A present journal of another length is removed first.
    pub(crate) fn replace_journal(&mut self, size: JournalSize) -> Result<(), Error> {
        let present = self.journal_length()?;
        let wanted = self.wanted_length(size, present)?;
        let mut orphan_file = None;
        if let Some(now) = present {
            if now == wanted {
                return Ok(());
            }
            orphan_file = self.remove_orphan_file()?;
            self.remove_journal_alone()?;
        }
        self.add_journal(wanted)?;
        self.add_orphan_file(orphan_file)
    }

    /// Refuses a journal that [`Image::replace_journal`] cannot make.
    pub(crate) fn check_journal_size(&self, size: JournalSize) -> Result<(), Error> {
        self.wanted_length(size, self.journal_length()?).map(|_| ())
    }

    /// Returns the length of a new journal. As in tune2fs, the blocks for fast commits are added to
    /// the blocks of the log.
    ///
    /// # Errors
    /// [`Error::Refused`] if the length is out of range, or if there is no room.
    fn wanted_length(
        &self,
        size: JournalSize,
        present: Option<JournalLength>,
    ) -> Result<JournalLength, Error> {
        let all = self.geometry().block_count();
        let log = present.map(|now| now.blocks.saturating_sub(now.fast_commit_blocks));
        let log = size.blocks.or(log).unwrap_or(lanefs_mkfs::journal_blocks(all).max(MIN_BLOCKS));
        let takes_fast_commits = self.superblock.features().compat.contains(Compat::FAST_COMMIT);
        let fast_commit_blocks = match size.fast_commit_blocks {
            Some(blocks) => blocks,
            None if takes_fast_commits => lanefs_mkfs::fast_commit_blocks(all),
            None => 0,
        };
        let blocks = log.saturating_add(fast_commit_blocks);
        if blocks - fast_commit_blocks < MIN_BLOCKS || u64::from(blocks) > all / 2 {
            return Err(Refusal::JournalLength { blocks, least: MIN_BLOCKS }.into());
        }
        let wanted = JournalLength { blocks, fast_commit_blocks };
        if present != Some(wanted) {
            self.check_room(blocks, present.map_or(0, |now| now.blocks.into()))?;
        }
        Ok(wanted)
    }

    /// Refuses a journal of `blocks` blocks for which there is no room, even if `freed` blocks are
    /// freed before.
    fn check_room(&self, blocks: u32, freed: u64) -> Result<(), Error> {
        match self.superblock.free_blocks().saturating_add(freed) < u64::from(blocks) + 2 {
            true => Err(Refusal::NoRoom { blocks }.into()),
            false => Ok(()),
        }
    }

    /// Replaces the journal by one of the same length. All blocks of the new journal lie before
    /// `self.limit`, if a limit is set.
    pub(crate) fn make_journal_anew(&mut self) -> Result<(), Error> {
        let Some(length) = self.journal_length()? else { return Ok(()) };
        let orphan_file = self.remove_orphan_file()?;
        self.remove_journal_alone()?;
        self.add_journal(length)?;
        self.add_orphan_file(orphan_file)
    }

    /// Returns the journal's length in blocks, if there is a journal in the image.
    pub(crate) fn journal_len(&self) -> Result<Option<u32>, Error> {
        Ok(self.journal_length()?.map(|length| length.blocks))
    }

    fn journal_length(&self) -> Result<Option<JournalLength>, Error> {
        let Some(JournalPlace::Inode(ino)) = self.superblock.journal() else {
            return Ok(None);
        };
        let found = log::find(&*self.device, &self.superblock, ino)?.superblock;
        let fast_commit_blocks = found.recorded_fast_commit_blocks();
        Ok(Some(JournalLength { blocks: found.blocks(), fast_commit_blocks }))
    }

    fn add_journal(&mut self, length: JournalLength) -> Result<(), Error> {
        let blocks = length.blocks;
        let geometry = self.geometry();
        let middle = Block(geometry.block_count() / 2);
        let runs = self.claim(middle, blocks)?;
        self.write_empty_log(&runs, length)?;
        let inode = self.file_inode(Ino::JOURNAL, &runs, blocks)?;
        let size = inode.size;
        let root = inode.block;
        self.put_inode(Ino::JOURNAL, &inode)?;
        // The changed bitmaps become a part of the transaction. Only the journal's inode and its
        // extent tree are written before the transaction.
        let bitmaps = std::mem::take(&mut self.bitmaps);
        self.write_blocks_in_place()?;
        self.bitmaps = bitmaps;
        let overhead = self.superblock.raw().s_overhead_clusters.get();
        self.edit(|raw| {
            raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits());
            raw.s_journal_inum.set(Ino::JOURNAL.0);
            raw.s_journal_dev.set(0);
            raw.s_journal_uuid = [0; 16];
            raw.s_jnl_backup_type = BACKUP_BLOCKS;
            for (word, bytes) in raw.s_jnl_blocks.iter_mut().zip(root.as_chunks().0) {
                word.set(u32::from_le_bytes(*bytes));
            }
            let [.., high, low] = &mut raw.s_jnl_blocks;
            high.set((size >> 32) as u32);
            low.set(size as u32);
            if overhead != 0 {
                raw.s_overhead_clusters.set(overhead.saturating_add(blocks));
            }
        })?;
        self.commit_to_new_journal()
    }

    /// Zeroes the free blocks `runs`, and writes a journal superblock into the first block.
    fn write_empty_log(&self, runs: &[(Block, u32)], length: JournalLength) -> Result<(), Error> {
        let block_size = self.geometry().block_size();
        for (start, len) in runs {
            let bits = block_size.bits();
            self.device.write_zeros(start.0 << bits, u64::from(*len) << bits)?;
        }
        let head = JournalSuperblock::new(block_size, length.blocks, self.superblock.uuid())
            .with_fast_commit_blocks(length.fast_commit_blocks);
        if let Some((first, _)) = runs.first() {
            self.device.write_at(first.0 << block_size.bits(), &head.encode())?;
        }
        Ok(self.device.flush()?)
    }
}

/// Uses a journal for one change.
impl Image {
    /// Makes a change to a file system without a journal: adds a journal first, and removes it
    /// afterwards. It may take more than half of the file system. After a crash, or if the device
    /// failed, the journal may still be present.
    pub(crate) fn with_journal<T>(
        &mut self,
        change: impl FnOnce(&mut Image) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let blocks = lanefs_mkfs::journal_blocks(self.geometry().block_count()).max(MIN_BLOCKS);
        self.check_room(blocks, 0)?;
        self.add_journal(JournalLength { blocks, fast_commit_blocks: 0 })?;
        let changed = change(self);
        match &changed {
            Ok(_) => self.remove_journal_alone()?,
            // The error of the change says more than a second error of the same device.
            Err(_) => drop(self.remove_journal_after_failure()),
        }
        changed
    }

    /// Removes the journal after a failed change. The image in memory is half changed then, so it
    /// is read again. A journal that a recovery needs is kept.
    fn remove_journal_after_failure(&mut self) -> Result<(), Error> {
        self.reload()?;
        let needs_replay = self.superblock.features().incompat.contains(Incompat::RECOVER);
        match self.log()? {
            Some(log) if !needs_replay && log.superblock.start().is_none() => {
                self.remove_journal_alone()
            }
            _ => Ok(()),
        }
    }
}

/// Removes the journal.
impl Image {
    /// Removes the journal, and the orphan file, which is useless without it.
    pub(crate) fn remove_journal(&mut self) -> Result<(), Error> {
        self.remove_orphan_file()?;
        self.remove_journal_alone()
    }

    fn remove_journal_alone(&mut self) -> Result<(), Error> {
        let mut inode = self.inode(Ino::JOURNAL)?;
        let freed = inode.size >> self.geometry().block_size().bits();
        let time = seconds();
        inode.set_mtime(Time { secs: time as i64, nanos: 0 });
        self.put_inode(Ino::JOURNAL, &inode)?;
        self.write_blocks_in_place()?;
        let overhead = self.superblock.raw().s_overhead_clusters.get();
        self.edit(|raw| {
            let kept = !Compat::HAS_JOURNAL;
            raw.s_feature_compat.set(raw.s_feature_compat.get() & kept.bits());
            raw.s_journal_inum.set(0);
            raw.s_jnl_backup_type = 0;
            raw.s_jnl_blocks.iter_mut().for_each(|word| word.set(0));
            raw.s_overhead_clusters.set(overhead.saturating_sub(freed as u32));
        })?;
        self.superblock.set_state(self.superblock.state() - State::VALID);
        self.superblock.set_write_time(time);
        self.write_all_superblocks()?;
        self.note_written();
        self.free_old_journal(&inode)?;
        self.clear_journal_inode()
    }

    /// Frees the blocks of the journal that the superblock no longer names, and marks the file
    /// system clean. After an interruption some of these blocks may be free already, and checksums
    /// of bitmaps may be wrong.
    fn free_old_journal(&mut self, inode: &Inode) -> Result<(), Error> {
        let (map, nodes) = self.map(Ino::JOURNAL, inode)?;
        let extents = map.iter().map(|extent| (extent.block, u64::from(extent.len)));
        let runs: Vec<_> = extents.chain(nodes.into_iter().map(|node| (node, 1))).collect();
        for (start, len) in runs {
            for (group, bit, len) in self.pieces(start, len)? {
                if !self.bitmaps.contains_key(&group) {
                    let bitmap = self.unchecked_bitmap(group)?;
                    self.bitmaps.insert(group, bitmap);
                }
                let Some(bitmap) = self.bitmaps.get_mut(&group) else { continue };
                for bit in (bit..bit + len).filter(|bit| bitmap.get(*bit)).collect::<Vec<_>>() {
                    let cleared = bitmap.clear(bit, 1);
                    cleared.map_err(|cause| Corruption::Bitmap { group, cause })?;
                }
            }
        }
        let time = self.superblock.write_time();
        self.encode()?;
        self.write_blocks_in_place()?;
        self.superblock.set_state(self.superblock.state() | State::VALID);
        self.superblock.set_write_time(time);
        self.write_primary(&self.superblock)?;
        self.note_written();
        Ok(())
    }

    /// Returns the block bitmap of a group, even if its checksum is wrong.
    fn unchecked_bitmap(&self, group: Group) -> Result<Bitmap, Error> {
        let desc = self.descriptor(group)?;
        let bits = self.geometry().clusters_in_group(group).unwrap_or(0);
        Ok(Bitmap::from_bytes(&self.block(desc.block_bitmap)?, bits))
    }
}
