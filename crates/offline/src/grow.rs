//! Makes a file system larger, by new groups after the last one.
//!
//! The new part is written first; no metadata refers to the new part until the superblock does. All
//! other changes are one transaction: descriptors, resize inode, superblock. Descriptors are placed
//! in blocks that the resize inode reserves; without a resize inode, in the new groups (`meta_bg`).

use crate::error::Error;
use crate::image::Image;
use lanefs_ext4::mkfs::extend::{
    NewGroup, descriptor_copies, new_groups, resize_block_count, resize_blocks,
};
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::features::{Compat, Incompat};
use lanefs_ondisk::group_desc::GroupFlags;
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::superblock::{Geometry, RawSuperblock, Superblock};
use lanefs_ondisk::{Block, Group, Ino};

/// The smallest number of data blocks in a last group; a shorter group is left out, as in mke2fs.
const MIN_LAST_GROUP: u64 = 50;
/// The slot of the double indirect block in the resize inode's block field.
const DOUBLE_INDIRECT: usize = 13;

impl Image {
    /// Makes the file system larger, to at most `blocks` blocks; the device must have that size.
    /// Returns the new number of blocks.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Journal`], before any block in use is written.
    pub fn grow(&mut self, blocks: u64) -> Result<u64, Error> {
        let old = self.geometry();
        let device = self.device.len() >> old.block_size().bits();
        if blocks > device {
            return Err(Error::refused(format!(
                "the device has {device} blocks, and {blocks} were asked for"
            )));
        }
        let superblock = self.resized(blocks)?;
        let new = superblock.geometry();
        if new.block_count() <= old.block_count() {
            return Ok(old.block_count());
        }
        if self.superblock.journal().is_none() {
            return self.with_journal(|image| image.grow(blocks));
        }
        let groups = new_groups(&new, Group(old.group_count()), self.checksums())
            .ok_or_else(|| Error::refused("there is no room for the metadata of a new group"))?;
        self.extend_last_group(&new)?;
        self.superblock = superblock;
        for new_group in groups {
            self.add_group(&new_group)?;
        }
        self.set_resize_inode(&old)?;
        self.zero_new_heads(&old)?;
        self.copy_descriptors()?;
        self.commit()?;
        Ok(new.block_count())
    }

    /// Returns the superblock of the file system with another size, without free counts.
    pub(crate) fn resized(&self, blocks: u64) -> Result<Superblock, Error> {
        let (old, raw) = (self.geometry(), self.superblock.raw());
        if old.features().compat.contains(Compat::SPARSE_SUPER2) {
            return Err(Error::refused("a file system with sparse_super2 cannot be resized here"));
        }
        let mut blocks = blocks;
        if !old.features().incompat.contains(Incompat::BIT64) {
            blocks = blocks.min(u32::MAX.into());
        }
        let next = self.with_blocks(raw, blocks)?;
        let last = Group(next.geometry().group_count() - 1);
        let in_last = u64::from(next.geometry().blocks_in_group(last).unwrap_or(0));
        let least = u64::from(next.geometry().group_overhead(last))
            + 2
            + u64::from(old.itable_blocks())
            + MIN_LAST_GROUP;
        let is_new = blocks != old.block_count() && last.0 > 0;
        if is_new && in_last < least {
            return self.with_blocks(raw, next.geometry().block_count() - in_last);
        }
        Ok(next)
    }

    fn with_blocks(&self, raw: &RawSuperblock, blocks: u64) -> Result<Superblock, Error> {
        let old = self.geometry();
        let per_group = u64::from(old.blocks_per_group());
        let groups = blocks.saturating_sub(old.first_data_block().0).div_ceil(per_group);
        let inodes = groups.checked_mul(old.inodes_per_group().into());
        let inodes = inodes.and_then(|inodes| u32::try_from(inodes).ok());
        let inodes = inodes.ok_or_else(|| {
            Error::refused(format!("{groups} groups would have more than 2^32 inodes"))
        })?;
        let mut raw = raw.clone();
        raw.s_blocks_count_lo.set(blocks as u32);
        raw.s_blocks_count_hi.set((blocks >> 32) as u32);
        raw.s_inodes_count.set(inodes);
        // The counts are set at the commit; until then they must be values that a check accepts.
        let free = self.superblock.free_blocks().min(blocks);
        raw.s_free_blocks_count_lo.set(free as u32);
        raw.s_free_blocks_count_hi.set((free >> 32) as u32);
        raw.s_free_inodes_count.set(self.superblock.free_inodes().min(inodes));
        let reserved = u128::from(self.superblock.reserved_blocks()) * u128::from(blocks)
            / u128::from(old.block_count().max(1));
        raw.s_r_blocks_count_lo.set(reserved as u32);
        raw.s_r_blocks_count_hi.set((reserved >> 32) as u32);
        let desc_blocks = groups.div_ceil(old.descs_per_block().into());
        let more = desc_blocks.saturating_sub(old.desc_blocks().into());
        let fewer = u64::from(old.desc_blocks()).saturating_sub(desc_blocks);
        if more > 0 {
            self.make_room_for_descriptors(&mut raw, more)?;
        } else if fewer > 0 && old.features().compat.contains(Compat::RESIZE_INODE) {
            // The reserve is limited to the blocks to which one block of pointers can refer.
            let most = old.block_size().bytes() as u64 / 4;
            let reserved = (u64::from(old.reserved_gdt_blocks()) + fewer).min(most);
            raw.s_reserved_gdt_blocks.set(reserved as u16);
        }
        let heads_before = self.superblock.raw().s_overhead_clusters.get();
        let next = Superblock::from_raw(raw.clone())?;
        if heads_before != 0 {
            let others = u64::from(heads_before).saturating_sub(overhead(&old));
            let overhead = overhead(&next.geometry()) + others;
            raw.s_overhead_clusters.set(u32::try_from(overhead).unwrap_or(0));
        }
        Ok(Superblock::from_raw(raw)?)
    }

    /// Takes `more` blocks for descriptors out of the reserve, or places the new descriptors in the
    /// new groups.
    fn make_room_for_descriptors(&self, raw: &mut RawSuperblock, more: u64) -> Result<(), Error> {
        let features = self.superblock.features();
        if features.incompat.contains(Incompat::META_BG) {
            return Ok(());
        }
        if !features.compat.contains(Compat::RESIZE_INODE) {
            raw.s_feature_incompat.set((features.incompat | Incompat::META_BG).bits());
            raw.s_first_meta_bg.set(self.geometry().desc_blocks());
            return Ok(());
        }
        let reserved = u64::from(raw.s_reserved_gdt_blocks.get());
        let left = reserved.checked_sub(more).ok_or_else(|| {
            Error::refused(format!(
                "{more} more blocks of descriptors are needed, and the resize inode reserves \
                 {reserved}: resize2fs can move blocks to make room"
            ))
        })?;
        raw.s_reserved_gdt_blocks.set(left as u16);
        Ok(())
    }

    /// Frees the blocks that are added to the last group.
    fn extend_last_group(&mut self, new: &Geometry) -> Result<(), Error> {
        let old = self.geometry();
        let last = Group(old.group_count() - 1);
        let (before, after) = (old.blocks_in_group(last), new.blocks_in_group(last));
        let (Some(before), Some(after)) = (before, after) else {
            return Err(lanefs_ext4::Error::Stale.into());
        };
        if before == after {
            return Ok(());
        }
        let now = self.block_bitmap(last)?;
        let mut bitmap = Bitmap::new(after);
        let used = (0..before).filter(|bit| now.get(*bit));
        used.for_each(|bit| bitmap.fill(bit..bit + 1));
        self.bitmaps.insert(last, bitmap);
        Ok(())
    }

    /// Writes the bitmaps and the table of a new group, and adds its descriptor.
    fn add_group(&mut self, new: &NewGroup) -> Result<(), Error> {
        let (geometry, checksums) = (self.geometry(), self.checksums());
        let bits = geometry.block_size().bits();
        let mut desc = new.desc;
        let mut bytes = vec![0; self.block_bytes()];
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            new.bitmap.encode_blocks_into(&mut bytes, &mut desc, &geometry, checksums);
            self.device.write_at(desc.block_bitmap.0 << bits, &bytes)?;
        }
        if checksums == Checksums::None {
            let inodes = Bitmap::new(geometry.inodes_per_group());
            inodes.encode_inodes_into(&mut bytes, &mut desc, &geometry, checksums);
            self.device.write_at(desc.inode_bitmap.0 << bits, &bytes)?;
        }
        let table = u64::from(geometry.itable_blocks());
        self.device.write_zeros(desc.inode_table.0 << bits, table << bits)?;
        self.descriptors.push(desc);
        Ok(())
    }

    /// Makes the resize inode reserve the remaining descriptor blocks, in the new groups too.
    pub(crate) fn set_resize_inode(&mut self, old: &Geometry) -> Result<(), Error> {
        let new = self.geometry();
        if !new.features().compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let same_backups = old.backups().count() == new.backups().count();
        if same_backups && old.desc_blocks() == new.desc_blocks() {
            return Ok(());
        }
        let mut inode = self.inode(Ino::RESIZE)?;
        let pointers = pointers_of(&inode);
        if !new.contains(pointers) {
            return Err(Error::refused("the resize inode is damaged: check it with e2fsck -f"));
        }
        for (block, bytes) in resize_blocks(&new, pointers) {
            if self.block(block)? != bytes {
                self.blocks.insert(block, bytes);
            }
        }
        inode.sectors = resize_block_count(&new) * (new.block_size().bytes() as u64 / 512);
        self.put_inode(Ino::RESIZE, &inode)
    }

    /// Moves the block of pointers of the resize inode, if it lies at or beyond `end`.
    pub(crate) fn move_resize_pointers(&mut self, end: u64) -> Result<(), Error> {
        let has = self.superblock.features().compat.contains(Compat::RESIZE_INODE);
        let mut inode = self.inode(Ino::RESIZE)?;
        let old = pointers_of(&inode);
        if !has || old.0 < end {
            return Ok(());
        }
        for (new, _) in self.claim(Block(0), 1)? {
            let bytes = self.block(old)?;
            self.blocks.insert(new, bytes);
            let word = inode.block.get_mut(DOUBLE_INDIRECT * 4..DOUBLE_INDIRECT * 4 + 4);
            let word = word.ok_or(lanefs_ext4::Error::Stale)?;
            word.copy_from_slice(&(new.0 as u32).to_le_bytes());
        }
        self.release(old, 1)?;
        self.put_inode(Ino::RESIZE, &inode)?;
        self.commit()
    }

    /// Clears the blocks that contain the new groups' superblocks, since a superblock does not fill
    /// its block.
    fn zero_new_heads(&mut self, old: &Geometry) -> Result<(), Error> {
        let new = self.geometry();
        for group in new.backups().filter(|group| group.0 >= old.group_count()) {
            let place = new.group_first_block(group).unwrap_or_default();
            self.blocks.insert(place, vec![0; self.block_bytes()]);
        }
        Ok(())
    }

    /// Writes the copies of the descriptors, before the transaction. They are valid for the smaller
    /// file system too, whose groups they all contain.
    pub(crate) fn copy_descriptors(&mut self) -> Result<(), Error> {
        self.encode()?;
        let geometry = self.geometry();
        let bits = geometry.block_size().bits();
        for index in 0..geometry.desc_blocks() {
            let primary = geometry.desc_block(index).ok_or(lanefs_ext4::Error::Stale)?;
            let bytes = self.block(primary)?;
            for place in descriptor_copies(&geometry, index) {
                if place != primary {
                    self.device.write_at(place.0 << bits, &bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the double indirect block of the resize inode.
fn pointers_of(inode: &Inode) -> Block {
    let at = DOUBLE_INDIRECT * 4;
    let word = inode.block.get(at..at + 4).and_then(|word| word.try_into().ok());
    Block(u32::from_le_bytes(word.unwrap_or_default()).into())
}

/// Returns the number of blocks that hold no files: superblocks, descriptors, bitmaps, tables.
fn overhead(geometry: &Geometry) -> u64 {
    let groups = (0..geometry.group_count()).map(Group);
    let heads: u64 = groups.map(|group| u64::from(geometry.group_overhead(group))).sum();
    heads + u64::from(geometry.group_count()) * (2 + u64::from(geometry.itable_blocks()))
}
