//! Makes a file system larger, by adding groups after the last group.
//!
//! The new part is written first, since nothing refers to it until the superblock is written. All
//! other changes (descriptors, resize inode, superblock) are one transaction. Descriptors are
//! placed in blocks that the resize inode reserves. Without a resize inode, they are placed in the
//! new groups (`meta_bg`).

use crate::error::{Error, Refusal};
use crate::image::Image;
use lanefs_ext4::Expected;
use lanefs_mkfs::resize::{
    DOUBLE_INDIRECT, NewGroup, descriptor_copies, new_groups, reach_of_reserved,
    resize_block_count, resize_blocks, resize_pointers, resized, without_resize_inode,
};
use lanefs_ondisk::BadSize;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::features::Compat;
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::superblock::{Geometry, Superblock};
use lanefs_ondisk::{Block, Group, Ino};

impl Image {
    /// Makes the file system larger, to at most `blocks` blocks. The device must already be large
    /// enough for `blocks` blocks. Returns the new number of blocks.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Journal`], before any block in use is written.
    pub fn grow(&mut self, blocks: u64) -> Result<u64, Error> {
        let old = self.geometry();
        self.check_device(blocks)?;
        let superblock = self.resized(blocks)?;
        let new = superblock.geometry();
        if new.block_count() <= old.block_count() {
            return Ok(old.block_count());
        }
        if self.superblock.journal().is_none() {
            return self.with_journal(|image| image.grow(blocks));
        }
        let groups = new_groups(&new, Group(old.group_count()), self.checksums())
            .ok_or(BadSize::ShortGroup)?;
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

    /// Does the same as [`Image::grow`], with no limit by the blocks that the resize inode reserves
    /// for descriptors: once these are in use, it removes the resize inode, and the descriptors of
    /// further groups lie in these groups (`meta_bg`). Some boot loaders do not read such a file
    /// system. After a crash or an error of the device, the file system may have a size between, and
    /// one without a journal the journal of the growth.
    ///
    /// # Errors
    /// Those of [`Image::grow`].
    pub fn grow_by_meta_bg(&mut self, blocks: u64) -> Result<u64, Error> {
        let old = self.geometry();
        let reach = reach_of_reserved(&old);
        let has = self.superblock.features().compat.contains(Compat::RESIZE_INODE);
        if has && blocks > reach && self.resized(reach)?.geometry().reserved_gdt_blocks() == 0 {
            self.check_device(blocks)?;
            // Nothing is changed if the second half of the growth would be refused.
            self.check_growth(blocks, true)?;
            let pointers = resize_pointers(&self.inode(Ino::RESIZE)?);
            for (block, bytes) in resize_blocks(&old, pointers) {
                if !old.contains(block) || self.block(block)? != bytes {
                    return Err(BadSize::ResizeInode.into());
                }
            }
            if self.superblock.journal().is_none() {
                return self.with_journal(|image| image.grow_by_meta_bg(blocks));
            }
            self.grow(reach)?;
            self.remove_resize_inode()?;
        }
        self.grow(blocks)
    }

    /// Checks that the layout allows a growth to `blocks` blocks; with `meta_bg` by
    /// [`Image::grow_by_meta_bg`]. Whether the device is long enough is not checked.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn check_growth(&self, blocks: u64, meta_bg: bool) -> Result<(), Error> {
        let old = self.geometry();
        let reach = reach_of_reserved(&old);
        let has = old.features().compat.contains(Compat::RESIZE_INODE);
        let steps = match meta_bg && has && blocks > reach {
            true => vec![
                self.resized(reach)?,
                resized(&without_resize_inode(&self.superblock)?, blocks)?,
            ],
            false => vec![self.resized(blocks)?],
        };
        for larger in steps {
            new_groups(&larger.geometry(), Group(old.group_count()), self.checksums())
                .ok_or(BadSize::ShortGroup)?;
        }
        Ok(())
    }

    fn check_device(&self, blocks: u64) -> Result<(), Error> {
        let device = self.device.len() >> self.geometry().block_size().bits();
        match blocks > device {
            true => Err(Refusal::ShortDevice { device, blocks }.into()),
            false => Ok(()),
        }
    }

    /// Removes the resize inode. All blocks that it reserved are descriptors now.
    fn remove_resize_inode(&mut self) -> Result<(), Error> {
        let pointers = resize_pointers(&self.inode(Ino::RESIZE)?);
        if !self.geometry().contains(pointers) {
            return Err(BadSize::ResizeInode.into());
        }
        self.release(pointers, 1)?;
        self.put_inode(Ino::RESIZE, &Inode::zeroed(self.superblock.extra_isize()))?;
        self.superblock = without_resize_inode(&self.superblock)?;
        self.copy_descriptors()?;
        self.commit()
    }

    /// Returns the superblock that the file system has after a resize to `blocks` blocks. The
    /// counts of free blocks and inodes are still those of the old size.
    pub(crate) fn resized(&self, blocks: u64) -> Result<Superblock, Error> {
        Ok(resized(&self.superblock, blocks)?)
    }

    /// Extends the last group's bitmap by the blocks that are added to the group, as free blocks.
    fn extend_last_group(&mut self, new: &Geometry) -> Result<(), Error> {
        let old = self.geometry();
        let last = Group(old.group_count() - 1);
        let (before, after) = (old.blocks_in_group(last), new.blocks_in_group(last));
        let (Some(before), Some(after)) = (before, after) else {
            return Err(lanefs_ext4::Error::internal().into());
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

    /// Writes the bitmaps and the inode table of a new group, and adds its descriptor.
    fn add_group(&mut self, new: &NewGroup) -> Result<(), Error> {
        let desc = new.write(&*self.device, &self.geometry(), self.checksums())?;
        self.descriptors.push(desc);
        Ok(())
    }

    /// Makes the resize inode reserve the descriptor blocks that are not used yet, including those
    /// in the new groups.
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
        let pointers = resize_pointers(&inode);
        if !new.contains(pointers) {
            return Err(BadSize::ResizeInode.into());
        }
        for (block, bytes) in resize_blocks(&new, pointers) {
            if self.block(block)? != bytes {
                self.blocks.insert(block, bytes);
            }
        }
        inode.sectors = resize_block_count(&new) * (new.block_size().bytes() as u64 / 512);
        self.put_inode(Ino::RESIZE, &inode)
    }

    /// Moves the resize inode's block of pointers, if that block lies at or beyond `end`.
    pub(crate) fn move_resize_pointers(&mut self, end: u64) -> Result<(), Error> {
        let has = self.superblock.features().compat.contains(Compat::RESIZE_INODE);
        let mut inode = self.inode(Ino::RESIZE)?;
        let old = resize_pointers(&inode);
        if !has || old.0 < end {
            return Ok(());
        }
        for (new, _) in self.claim(Block(0), 1)? {
            let bytes = self.block(old)?;
            self.blocks.insert(new, bytes);
            let word = inode.block.get_mut(DOUBLE_INDIRECT * 4..DOUBLE_INDIRECT * 4 + 4);
            let word = word.expected()?;
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

    /// Writes the backup copies of the descriptors, before the transaction. The copies are valid
    /// for the smaller size too, because they contain the descriptors of all groups of that size.
    pub(crate) fn copy_descriptors(&mut self) -> Result<(), Error> {
        self.encode()?;
        let geometry = self.geometry();
        let bits = geometry.block_size().bits();
        for index in 0..geometry.desc_blocks() {
            let primary = geometry.desc_block(index).expected()?;
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
