//! Makes the file system larger while it is in use.
//!
//! 1. The new groups are written beyond the end of the file system, with the copies of descriptors
//!    and superblocks that they contain. Nothing refers to the new groups yet. A flush makes them
//!    durable.
//! 2. One handle shows the new blocks to the allocators, and puts the change on the list of its
//!    transaction. So every change that uses the new blocks belongs to this transaction or a later
//!    one. The capture writes descriptors, resize inode and superblock, which no other thread
//!    writes.
//! 3. The transaction is committed. A crash before that leaves the old size, and a crash after it
//!    the new size. Right after the commit, the transaction's blocks are written to their final
//!    locations. The superblock is written last: before e2fsck and the kernel replay the log, they
//!    check all descriptors that the superblock counts.
//! 4. The old backups of the superblock are brought up to date.
//!
//! Readers of the geometry and of the tables of groups need no lock, because the tables get longer
//! in place, and the geometry is replaced as a whole.

use crate::object::dirty::{Dirty, Growth, ResizeInode};
use crate::object::fs::Fs;
use crate::object::orphan::resized;
use crate::volume::BlockReader;
use lanefs_lanes::sync::Arc;
use lanefs_mkfs::resize::{
    backup, descriptor_copies, new_groups, resize_block_count, resize_blocks, resize_pointers,
};
use lanefs_ondisk::features::Compat;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::inode::Inode;
use lanefs_ondisk::superblock::{Geometry, Superblock};
use lanefs_ondisk::{BadSize, Block, Group, Ino};
use lanefs_plan::Expected;
use lanefs_plan::{CannotGrow, Error, InvalidArgument};
use std::ops::Range;

impl Fs {
    /// Makes the file system larger, to at most `blocks` blocks; the device is made longer if that
    /// is possible. Returns the new number of blocks, which is durable. Other threads may use the
    /// file system meanwhile.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for fewer blocks than the file system has; [`Error::CannotGrow`]
    /// with the reason; [`Error::ReadOnly`]. Even after an error, the file system may have grown by
    /// some groups.
    pub fn grow(&self, blocks: u64) -> Result<u64, Error> {
        let _one = self.growing.0.lock();
        self.check_writable()?;
        if blocks < self.volume.geometry().block_count() {
            return Err(InvalidArgument::Smaller.into());
        }
        let superblock = self.superblock.snapshot();
        if superblock.journal().is_none() {
            return Err(CannotGrow::NoJournal.into());
        }
        let wanted = resized(&superblock, blocks)?.geometry();
        self.make_device_longer(&wanted)?;
        loop {
            let now = *self.volume.geometry();
            if wanted.block_count() <= now.block_count() {
                return Ok(now.block_count());
            }
            self.grow_once(&wanted)?;
        }
    }

    /// Makes the file system larger by as many groups as fit into one transaction.
    fn grow_once(&self, wanted: &Geometry) -> Result<(), Error> {
        let volume = &self.volume;
        let old = *volume.geometry();
        let superblock = self.superblock.snapshot();
        let (larger, growth) = self.plan_growth(&superblock, wanted)?;
        let last = Group(old.group_count() - 1);
        // The bitmaps of the last old group are kept in memory until the transaction lists the
        // group as changed.
        let hold = self.groups.bitmaps.load(self, last)?;
        self.write_new_heads(&larger, &growth)?;
        self.journal.flush_all(self)?;
        let growth = Arc::new(growth);
        let mut handle = self.join(growth.credits())?;
        if let Some(fast) = &self.fast {
            fast.tree_changes(handle.tid());
        }
        handle.charge(growth.blocks());
        self.groups.add_new(&growth.new, &growth.descriptors);
        self.tables.grow(&growth.new, &growth.descriptors);
        volume.grow(growth.new, &growth.descriptors);
        self.groups.open_new(&mut handle, growth.new, &growth.descriptors);
        handle.dirty(Dirty::Growth(growth));
        let tid = handle.tid();
        drop(handle);
        drop(hold);
        self.journal.commit_here(tid, self)?;
        for group in old.backups() {
            self.write_backup(&larger, group)?;
        }
        Ok(())
    }
}

impl Fs {
    fn make_device_longer(&self, wanted: &Geometry) -> Result<(), Error> {
        let device = &self.volume.device;
        let needs = wanted.block_count().saturating_mul(wanted.block_size().bytes() as u64);
        if device.len() >= needs {
            return Ok(());
        }
        device
            .lengthen(needs)
            .map_err(|cause| CannotGrow::ShortDevice { needs, has: device.len(), cause }.into())
    }

    /// Plans the largest growth up to `wanted` that fits into one transaction, and writes the
    /// bitmaps and tables of the new groups. Returns the growth with the new superblock.
    fn plan_growth(
        &self,
        superblock: &Superblock,
        wanted: &Geometry,
    ) -> Result<(Superblock, Growth), Error> {
        let volume = &self.volume;
        let old = *volume.geometry();
        let first = Group(old.group_count());
        let most = self.journal.max_credits();
        let mut target = wanted.block_count();
        loop {
            let larger = resized(superblock, target)?;
            let new = larger.geometry();
            let groups = new_groups(&new, first, volume.checksums)
                .ok_or(CannotGrow::Size(BadSize::ShortGroup))?;
            let descriptors = groups.iter().map(|group| group.desc).collect();
            let resize = self.plan_resize_inode(&old, &new)?;
            let mut growth = Growth { old, new, descriptors, resize };
            if growth.credits().blocks <= most {
                let written = groups
                    .iter()
                    .map(|group| Ok(group.write(&*volume.device, &new, volume.checksums)?));
                growth.descriptors = written.collect::<Result<Vec<GroupDesc>, Error>>()?;
                return Ok((larger, growth));
            }
            let added = new.group_count().saturating_sub(first.0);
            if added <= 1 {
                let needs = growth.credits().blocks;
                return Err(CannotGrow::ShortLog { needs, most }.into());
            }
            let next = new.group_first_block(Group(first.0 + added / 2)).unwrap_or_default();
            target = next.0;
        }
    }

    /// Reads the resize inode.
    fn resize_inode(&self) -> Result<Inode, Error> {
        let place = self.volume.inode_place(Ino::RESIZE)?;
        let table = self.table_block(place.group, place.table_block)?;
        let bytes = self.tables.base(&table, self)?;
        let record = self.volume.record_in(&bytes, place.offset).expected()?;
        let (geometry, checksums) = (self.volume.geometry(), self.volume.checksums);
        Ok(Inode::decode(record, Ino::RESIZE, geometry, checksums)?)
    }

    /// Returns the changes of the resize inode. After these changes it reserves the descriptor
    /// blocks that are still unused, in the old groups and in the new ones.
    fn plan_resize_inode(
        &self,
        old: &Geometry,
        new: &Geometry,
    ) -> Result<Option<ResizeInode>, Error> {
        let same = old.backups().count() == new.backups().count();
        let has = new.features().compat.contains(Compat::RESIZE_INODE);
        if !has || same && old.desc_blocks() == new.desc_blocks() {
            return Ok(None);
        }
        let pointers = resize_pointers(&self.resize_inode()?);
        if !new.contains(pointers) {
            return Err(CannotGrow::Size(BadSize::ResizeInode).into());
        }
        let mut blocks = resize_blocks(new, pointers);
        let mut failed = None;
        blocks.retain(|(block, bytes)| match self.read_block_of_size(*block, old) {
            Ok(found) => found.is_none_or(|found| *found != **bytes),
            Err(error) => {
                failed.get_or_insert(error);
                true
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let sectors = self.volume.sectors(resize_block_count(new));
        Ok(Some(ResizeInode { blocks, sectors }))
    }

    /// Reads a block; `None` if it is beyond the end of a file system of this `size`.
    fn read_block_of_size(
        &self,
        block: Block,
        size: &Geometry,
    ) -> Result<Option<Arc<[u8]>>, Error> {
        size.contains(block).then(|| self.read_block(block)).transpose()
    }

    /// Writes the copies of the superblock that lie in new groups. Also writes copies of descriptor
    /// blocks: all copies of each block that changes, and those copies of the other blocks that lie
    /// in new groups. These copies are valid for the smaller file system too, because they contain
    /// the descriptors of all its groups.
    fn write_new_heads(&self, larger: &Superblock, growth: &Growth) -> Result<(), Error> {
        let (device, new) = (&self.volume.device, &growth.new);
        let size = new.block_size();
        let end = growth.old.block_count();
        for group in new.backups().filter(|group| group.0 >= growth.old.group_count()) {
            let place = new.group_first_block(group).unwrap_or_default();
            device.write_zeros(place.0 << size.bits(), size.bytes() as u64)?;
            self.write_backup(larger, group)?;
        }
        let changed = growth.changed();
        for index in 0..new.desc_blocks() {
            let primary = new.desc_block(index).expected()?;
            let mut copies = descriptor_copies(new, index);
            copies
                .retain(|place| *place != primary && (changed.contains(&index) || place.0 >= end));
            if copies.is_empty() {
                continue;
            }
            let mut bytes = growth.base(index, self)?.to_vec();
            for (group, desc) in growth.groups() {
                if let Some((at, range)) = new.desc_place(group)
                    && at == index
                    && let Some(record) = bytes.get_mut(range)
                {
                    desc.encode_into(record, group, new, self.volume.checksums);
                }
            }
            for place in copies {
                device.write_at(place.0 << size.bits(), &bytes)?;
            }
        }
        Ok(())
    }

    fn write_backup(&self, superblock: &Superblock, group: Group) -> Result<(), Error> {
        let geometry = superblock.geometry();
        let place = geometry.group_first_block(group).unwrap_or_default();
        let bytes = backup(superblock, group)?.encode();
        Ok(self.volume.device.write_at(place.0 << geometry.block_size().bits(), &bytes)?)
    }
}

// Discards free blocks of a file system in use (FITRIM).

impl Fs {
    /// Discards the free blocks in this byte range of the device. Runs of free blocks that are
    /// shorter than `least` bytes are skipped. Returns the number of discarded bytes. Blocks that
    /// are freed in a transaction that is not durable yet are not discarded. Other threads may use
    /// the file system meanwhile.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], the error for a damaged bitmap, or an error of the device.
    pub fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64, Error> {
        self.check_writable()?;
        let geometry = *self.volume.geometry();
        let size = geometry.block_size();
        let bits = size.bits() + geometry.cluster_bits();
        let Ok(least) = u32::try_from(least.div_ceil(1 << bits).max(1)) else { return Ok(0) };
        let first = bytes.start.div_ceil(size.bytes() as u64).max(geometry.first_data_block().0);
        let blocks = first..(bytes.end >> size.bits()).min(geometry.block_count());
        let mut discarded = 0;
        let Some((from, _)) = geometry.group_of(Block(blocks.start)) else { return Ok(0) };
        for group in (from.0..geometry.group_count()).map(Group) {
            let (Some(start), Some(last)) =
                (geometry.group_first_block(group), geometry.group_last_block(group))
            else {
                break;
            };
            if start.0 >= blocks.end {
                break;
            }
            let within = |block: u64| (block.clamp(start.0, last.0 + 1) - start.0) as u32;
            let clusters = geometry.clusters();
            // Clusters that the range covers only partly are not discarded.
            let bits =
                clusters.holding(within(blocks.start))..within(blocks.end) >> clusters.bits();
            discarded += self.trim_group(group, bits, least)?;
        }
        Ok(discarded)
    }

    fn trim_group(&self, group: Group, bits: Range<u32>, least: u32) -> Result<u64, Error> {
        let shift = self.volume.geometry().block_size().bits();
        let (mut at, mut run_end, mut discarded) = (bits.start, bits.start, 0);
        loop {
            // A run may be discarded in several pieces. If the whole run is long enough, its last
            // piece is discarded too, however short that piece is.
            let least = if at < run_end { 1 } else { least };
            let run = self.groups.claim_free_run(self, group, at..bits.end, least)?;
            let Some(run) = run else { break };
            if let Some(claim) = &run.claim {
                let len = u64::from(claim.len()) << shift;
                self.volume.device.discard(claim.start().0 << shift, len)?;
                discarded += len;
            }
            (at, run_end) = (run.next, run.end);
        }
        Ok(discarded)
    }
}
