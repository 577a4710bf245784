//! Makes a file system smaller: moves the blocks and inodes that lie beyond the new end, then cuts
//! off the rest.
//!
//! Each move is a transaction that leaves a consistent file system of the old size. The cut is the
//! write of a superblock that has the new size and requests the replay of a transaction. That
//! transaction contains all other metadata that depends on the size. Until the superblock is
//! written, even a complete transaction in the log is ignored. If such a transaction could be
//! replayed earlier, a mount could read the old size, replay the transaction, and then continue
//! with the old size.

use crate::error::{Error, Refusal};
use crate::image::Image;
use crate::quota::Quotas;
use lanefs_ondisk::BadSize;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group, Ino};

/// Moving blocks adds nodes to extent trees and block maps. For these nodes, a shrink requires this
/// number of free blocks, plus one free block for each [`SPARE_SHARE`] moved blocks.
const SPARE: u64 = 64;
/// The number of moved blocks for which a shrink requires one more free block.
const SPARE_SHARE: u64 = 64;

impl Image {
    /// Makes the file system smaller, to `blocks` blocks. Returns the new number of blocks, which
    /// is less than `blocks` if the last group would be too short.
    ///
    /// # Errors
    /// [`Error::Refused`] before anything is written, with the smallest size that is possible.
    /// Other errors may leave a file system of the old size in which files have moved.
    pub fn shrink(&mut self, blocks: u64) -> Result<u64, Error> {
        self.check_can_shrink()?;
        let now = self.geometry();
        if blocks >= now.block_count() {
            return Ok(now.block_count());
        }
        // If no valid superblock is possible for this size, the size is reported as too small.
        let new = match self.resized(blocks).ok().map(|target| target.geometry()) {
            Some(new) if self.fits_within(&new)? => new,
            new => {
                let blocks = new.map_or(blocks, |new| new.block_count());
                let least = self.smallest()?;
                let bytes = least << now.block_size().bits();
                return Err(Refusal::TooSmall { blocks, least, bytes }.into());
            }
        };
        let mut quotas = self.read_quotas()?;
        self.limit = Some(new.block_count());
        let done = self.shrink_within(&new, &mut quotas);
        self.limit = None;
        done
    }

    /// Makes the file system smaller until a further run would gain less than a two-hundredth of
    /// its blocks. Returns the new number of blocks. A shrink needs free blocks in proportion to
    /// those that it moves, so after it the file system may become smaller still.
    ///
    /// # Errors
    /// The errors of [`Image::smallest`] and [`Image::shrink`].
    pub fn shrink_to_smallest(&mut self) -> Result<u64, Error> {
        loop {
            let (now, least) = (self.geometry().block_count(), self.smallest()?);
            if now.saturating_sub(least) <= now / 200 {
                return Ok(now);
            }
            self.shrink(least)?;
        }
    }

    /// Returns the smallest number of blocks to which the file system can be shrunk now.
    ///
    /// # Errors
    /// [`Error::Ext4`] if a bitmap is damaged.
    pub fn smallest(&self) -> Result<u64, Error> {
        let old = self.geometry();
        let per_group = u64::from(old.blocks_per_group());
        let fits = |blocks: u64| match self.resized(blocks) {
            Ok(target) if target.geometry().block_count() == blocks => {
                self.fits_within(&target.geometry())
            }
            _ => Ok(false),
        };
        let first = old.first_data_block().0;
        for groups in 1..=u64::from(old.group_count()) {
            let end = (first + groups * per_group).min(old.block_count());
            if !fits(end)? {
                continue;
            }
            // The smallest size ends in this group. A binary search finds it, because if a number
            // of blocks is sufficient, every larger number is sufficient too.
            let (mut no, mut yes) = (end - (end - first - 1) % per_group - 1, end);
            while yes - no > 1 {
                let middle = no + (yes - no) / 2;
                if fits(middle)? { yes = middle } else { no = middle }
            }
            return Ok(yes);
        }
        Ok(old.block_count())
    }

    fn shrink_within(&mut self, new: &Geometry, quotas: &mut Quotas) -> Result<u64, Error> {
        if self.superblock.journal().is_none() {
            let blocks = new.block_count();
            return self.with_journal(|image| {
                image.shrink_with_journal(&image.resized(blocks)?.geometry(), quotas)
            });
        }
        self.shrink_with_journal(new, quotas)
    }

    fn shrink_with_journal(&mut self, new: &Geometry, quotas: &mut Quotas) -> Result<u64, Error> {
        let end = new.block_count();
        self.move_journal(end)?;
        self.move_blocks(end, quotas)?;
        self.move_inodes(Group(new.group_count()))?;
        self.move_resize_pointers(end)?;
        self.cut(end)?;
        Ok(end)
    }

    /// If a part of the journal lies at or beyond `end`, replaces the journal by a new one that
    /// lies before `end`.
    fn move_journal(&mut self, end: u64) -> Result<(), Error> {
        if self.superblock.has_journal_elsewhere() {
            return Ok(());
        }
        let inode = self.inode(Ino::JOURNAL)?;
        let (map, nodes) = self.map(Ino::JOURNAL, &inode)?;
        let within = map.iter().all(|extent| extent.block.0 + u64::from(extent.len) <= end);
        match within && nodes.iter().all(|node| node.0 < end) {
            true => Ok(()),
            false => self.make_journal_anew(),
        }
    }

    /// Removes the groups beyond the end. All blocks of these groups are free already, except the
    /// blocks with the groups' own metadata.
    fn cut(&mut self, end: u64) -> Result<(), Error> {
        let target = self.resized(end)?;
        let (old, new) = (self.geometry(), target.geometry());
        for group in (new.group_count()..old.group_count()).map(Group) {
            let desc = *self.descriptor(group)?;
            for (start, len) in desc.metadata(&old) {
                let len = len.min(end.saturating_sub(start.0));
                self.release(start, len)?;
            }
        }
        for group in (0..new.group_count()).map(Group).filter(|g| old.group_has_super(*g)) {
            let (before, after) = (old.group_overhead(group), new.group_overhead(group));
            if before > after {
                let first = old.group_first_block(group).unwrap_or_default();
                self.release(Block(first.0 + u64::from(after)), (before - after).into())?;
            }
        }
        self.bitmaps.retain(|group, _| group.0 < new.group_count());
        let last = Group(new.group_count() - 1);
        let now = self.block_bitmap(last)?;
        let bits = new.blocks_in_group(last).unwrap_or(0);
        let mut bitmap = Bitmap::new(bits);
        (0..bits).filter(|bit| now.get(*bit)).for_each(|bit| bitmap.fill(bit..bit + 1));
        self.bitmaps.insert(last, bitmap);
        self.superblock = target;
        self.descriptors.truncate(new.group_count() as usize);
        self.set_resize_inode(&old)?;
        self.copy_descriptors()?;
        self.commit_smaller()
    }

    /// Returns whether all blocks and inodes in use fit before the end of `new`.
    fn fits_within(&self, new: &Geometry) -> Result<bool, Error> {
        let (old, end) = (self.geometry(), new.block_count());
        let last = Group(new.group_count() - 1);
        let in_last = u64::from(new.blocks_in_group(last).unwrap_or(0));
        // The `mmp` block is not moved, so it must lie before the new end.
        let cuts_mmp = self.superblock.mmp_block().is_some_and(|block| block.0 >= end);
        if cuts_mmp || in_last < u64::from(new.group_overhead(last)) {
            return Ok(false);
        }
        for group in (0..new.group_count()).map(Group) {
            let metadata = self.descriptor(group)?.metadata(&old);
            if metadata.iter().any(|(start, len)| start.0 + len > end) {
                return Ok(false);
            }
        }
        let (mut free, mut beyond) = (0, 0);
        for group in (0..old.group_count()).map(Group) {
            let bitmap = self.block_bitmap(group)?;
            let first = old.group_first_block(group).unwrap_or_default().0;
            let kept = end.saturating_sub(first).min(bitmap.bits().into()) as u32;
            let clear: u32 = bitmap.clear_runs(0..kept).map(|run| run.end - run.start).sum();
            free += u64::from(clear);
            let rest = bitmap.clear_runs(kept..bitmap.bits()).map(|run| run.end - run.start);
            beyond += u64::from(bitmap.bits() - kept - rest.sum::<u32>());
        }
        for group in (new.group_count()..old.group_count()).map(Group) {
            let heads = u64::from(old.group_overhead(group));
            let metadata = self.descriptor(group)?.metadata(&old);
            let own = metadata
                .iter()
                .map(|(start, len)| (start.0 + len).saturating_sub(start.0.max(end)).min(*len));
            beyond = beyond.saturating_sub(heads + own.sum::<u64>());
        }
        if self.superblock.journal().is_none() {
            beyond += u64::from(lanefs_mkfs::journal_blocks(old.block_count()).max(1024)) + 2;
        }
        let kept = self.descriptors.iter().take(new.group_count() as usize);
        let free_inodes: u64 = kept.map(|desc| u64::from(desc.free_inodes)).sum();
        let gone = self.descriptors.iter().skip(new.group_count() as usize);
        let per_group = old.inodes_per_group();
        let inodes: u64 = gone.map(|desc| u64::from(per_group - desc.free_inodes)).sum();
        let spare = if beyond == 0 { 0 } else { SPARE + beyond / SPARE_SHARE };
        Ok(beyond + spare <= free && inodes <= free_inodes)
    }

    /// Refuses file systems that this module cannot make smaller, because of their features.
    fn check_can_shrink(&self) -> Result<(), Error> {
        let features = self.superblock.features();
        // A shrink may change inode numbers. With `ea_inode` and `inline_data`, the inodes of other
        // files contain such numbers, and this module does not change them there.
        for (bit, feature) in [
            (Incompat::META_BG, "meta_bg"),
            (Incompat::EA_INODE, "ea_inode"),
            (Incompat::INLINE_DATA, "inline_data"),
        ] {
            if features.incompat.contains(bit) {
                return Err(Refusal::CannotShrink { feature }.into());
            }
        }
        // The keys of encrypted files may depend on inode numbers.
        if features.compat.contains(Compat::STABLE_INODES) {
            return Err(Refusal::CannotShrink { feature: "stable_inodes" }.into());
        }
        if features.compat.contains(Compat::SPARSE_SUPER2) {
            return Err(BadSize::SparseSuper2.into());
        }
        if features.ro_compat.contains(RoCompat::BIGALLOC) {
            return Err(BadSize::Bigalloc.into());
        }
        Ok(())
    }
}
