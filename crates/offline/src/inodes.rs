//! Lists the inodes in use, and takes and frees inodes.

use crate::error::Error;
use crate::image::Image;
use lanefs_ext4::Expected;
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::GroupFlags;
use lanefs_ondisk::{Corruption, Group, Ino};

impl Image {
    /// Returns the inodes in use: the root, and all others that are not reserved.
    pub(crate) fn used_inodes(&self) -> Result<Vec<Ino>, Error> {
        let geometry = self.geometry();
        let mut used = Vec::new();
        for group in (0..geometry.group_count()).map(Group) {
            if self.descriptor(group)?.free_inodes == geometry.inodes_per_group() {
                continue;
            }
            let bitmap = self.inode_bitmap(group)?;
            let mut at = 0;
            while let Some(bit) = bitmap.next_set(at..bitmap.bits()) {
                used.extend(geometry.ino_at(group, bit));
                at = bit + 1;
            }
        }
        used.retain(|ino| *ino == Ino::ROOT || *ino >= geometry.first_ino());
        Ok(used)
    }

    pub(crate) fn inode_bitmap(&self, group: Group) -> Result<Bitmap, Error> {
        if let Some(bitmap) = self.inode_bitmaps.get(&group) {
            return Ok(bitmap.clone());
        }
        let (geometry, desc) = (self.geometry(), self.descriptor(group)?);
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(Bitmap::new(geometry.inodes_per_group()));
        }
        let bytes = self.block(desc.inode_bitmap)?;
        Ok(Bitmap::decode_inodes(&bytes, group, desc, &geometry, self.checksums())?)
    }

    fn inode_bitmap_mut(&mut self, group: Group) -> Result<&mut Bitmap, Error> {
        let bitmap = self.inode_bitmap(group)?;
        Ok(self.inode_bitmaps.entry(group).or_insert(bitmap))
    }

    /// Takes a free inode of a group before `end`.
    pub(crate) fn claim_inode(&mut self, end: Group) -> Result<Ino, Error> {
        let per_group = self.geometry().inodes_per_group();
        for group in (0..end.0).map(Group) {
            let desc = *self.descriptor(group)?;
            if desc.free_inodes == 0 && !self.inode_bitmaps.contains_key(&group) {
                continue;
            }
            let free = self.inode_bitmap(group)?.next_clear(0..per_group);
            let Some(bit) = free else { continue };
            if bit >= per_group - desc.itable_unused {
                self.initialise_table(group)?;
            }
            let set = self.inode_bitmap_mut(group)?.set(bit, 1);
            set.map_err(|cause| Corruption::Bitmap { group, cause })?;
            if let Some(desc) = self.descriptors.get_mut(group.0 as usize) {
                desc.itable_unused = desc.itable_unused.min(per_group - bit - 1);
            }
            return Ok(self.geometry().ino_at(group, bit).expected()?);
        }
        Err(lanefs_ext4::Error::NoSpace.into())
    }

    /// Zeroes the part of a group's inode table that was never used, if it is not zeroed yet
    /// (mke2fs may leave the zeroing to a mount). No inode in this part is in use, so whole blocks
    /// are zeroed in place.
    fn initialise_table(&mut self, group: Group) -> Result<(), Error> {
        let (geometry, mut desc) = (self.geometry(), *self.descriptor(group)?);
        if desc.flags.contains(GroupFlags::INODE_ZEROED) || self.checksums() == Checksums::None {
            return Ok(());
        }
        let used = geometry.inodes_per_group() - desc.itable_unused;
        let per_block = geometry.inodes_per_block();
        let whole = used.div_ceil(per_block);
        for index in used..(whole * per_block).min(geometry.inodes_per_group()) {
            let ino = geometry.ino_at(group, index).expected()?;
            self.put_record(ino, vec![0; geometry.inode_size()])?;
        }
        let bits = geometry.block_size().bits();
        let rest = u64::from(geometry.itable_blocks().saturating_sub(whole));
        let start = desc.inode_table.0 + u64::from(whole);
        self.device.write_zeros(start << bits, rest << bits)?;
        desc.flags |= GroupFlags::INODE_ZEROED;
        self.set_descriptor(group, desc);
        Ok(())
    }

    /// Frees an inode.
    pub(crate) fn release_inode(&mut self, ino: Ino) -> Result<(), Error> {
        let place = self.geometry().inode_place(ino).expected()?;
        let cleared = self.inode_bitmap_mut(place.group)?.clear(place.index, 1);
        Ok(cleared.map_err(|cause| Corruption::Bitmap { group: place.group, cause })?)
    }

    /// Counts one directory less in the group of inode `from`, and one directory more in the group
    /// of inode `to`.
    pub(crate) fn move_directory_count(&mut self, from: Ino, to: Ino) {
        let geometry = self.geometry();
        for (ino, delta) in [(from, -1i64), (to, 1)] {
            let group = geometry.inode_place(ino).map(|place| place.group.0 as usize);
            if let Some(desc) = group.and_then(|group| self.descriptors.get_mut(group)) {
                let count = i64::from(desc.used_dirs) + delta;
                desc.used_dirs = u32::try_from(count).unwrap_or(0);
            }
        }
    }
}
