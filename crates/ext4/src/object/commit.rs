//! Implements the journal's client: writes images of dirty objects and does the work after a
//! commit.

use crate::alloc::GroupImage;
use crate::object::dirty::{Captured, CapturedRecord, Deferred, Dirty};
use crate::object::growth::Growth;
use crate::object::objects::Objects;
use crate::object::orphan::Chain;
use crate::object::record::chain_record;
use crate::object::superblock::{UsedFeatures, record_abort};
use crate::quota::Fold;
use crate::volume::reader::BlockReader;
use lanefs_journal::{Client, Images, Tid};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, Group, Ino, inode as disk};
use lanefs_plan::Error;
use std::collections::BTreeMap;

impl Client<Dirty, Deferred> for Objects {
    fn capture(
        &self,
        tid: Tid,
        objects: Vec<Dirty>,
        images: &mut Images,
    ) -> Result<(), lanefs_journal::Error> {
        self.capture_objects(tid, objects, images).map_err(journal_error)
    }

    fn committed(&self, tid: Tid, deferred: Vec<Deferred>) -> Result<(), lanefs_journal::Error> {
        // Tails are zeroed before blocks are released. As soon as a block is released, another file
        // may claim it, and then the zeros would destroy data of that file.
        for done in &deferred {
            if let Deferred::ZeroTail { offset, len } = *done {
                self.volume.device.write_zeros(offset, u64::from(len))?;
                self.journal.note_write();
            }
        }
        for done in deferred {
            if let Deferred::Free { start, len } = done {
                if self.discard {
                    // The blocks are discarded before another file can claim them. An error is
                    // ignored, because some devices cannot discard, and the file system does not
                    // depend on it.
                    let bits = self.volume.geometry().block_size().bits();
                    let _ = self.volume.device.discard(start.0 << bits, u64::from(len) << bits);
                }
                self.groups.release(start, len);
            }
        }
        self.groups.bitmaps.committed(tid);
        Ok(())
    }

    fn settled(&self, _tid: Tid) {
        self.reclaim_after_commit();
    }

    fn aborted(&self, cause: &lanefs_journal::Error) {
        self.become_read_only();
        // The error is ignored, because a device that refuses writes cannot record the abort
        // either.
        let _ = record_abort(&self.volume, cause);
    }
}

/// Converts an error of a capture to the journal's error type, and keeps its cause. The error
/// aborts the journal.
fn journal_error(error: Error) -> lanefs_journal::Error {
    match error {
        Error::Journal(error) => error,
        Error::Device(error) => error.into(),
        other => lanefs_journal::Error::client(other),
    }
}

/// Holds copies of blocks that many objects share. A capture patches each object's part into these
/// copies.
#[derive(Default)]
struct Shared {
    blocks: BTreeMap<Block, Vec<u8>>,
}

impl Shared {
    /// Returns the copy of `block`, created from `base` if it does not exist yet.
    fn patch(
        &mut self,
        block: Block,
        base: impl FnOnce() -> Result<Arc<[u8]>, Error>,
    ) -> Result<&mut Vec<u8>, Error> {
        use std::collections::btree_map::Entry;
        Ok(match self.blocks.entry(block) {
            Entry::Occupied(copy) => copy.into_mut(),
            Entry::Vacant(empty) => empty.insert(base()?.to_vec()),
        })
    }
}

impl Objects {
    fn capture_objects(
        &self,
        tid: Tid,
        objects: Vec<Dirty>,
        images: &mut Images,
    ) -> Result<(), Error> {
        let mut captured = Captured::new(&self.volume, images);
        let mut descriptors = Shared::default();
        let mut groups_changed = false;
        // Table blocks that come into use are written even if none of their inodes is dirty.
        let mut extended = Vec::new();
        let mut orphans_changed = false;
        let mut fold = Fold::default();
        // A growth is captured first, so that the captures of new groups find their descriptor
        // blocks.
        let growth = objects.iter().find_map(|object| match object {
            Dirty::Growth(growth) => Some(growth.clone()),
            _ => None,
        });
        if let Some(growth) = &growth {
            self.capture_growth(growth, &mut descriptors, &mut captured)?;
        }
        for object in objects {
            match object {
                Dirty::Object(object) => object.capture(tid, &mut captured),
                Dirty::Group(group) => {
                    if let Some(image) = self.groups.capture(tid, group) {
                        groups_changed = true;
                        let geometry = self.volume.geometry();
                        let unwritten = self.tables.extend(geometry, group, &image.desc);
                        extended.extend(unwritten.map(|index| (group, index)));
                        self.capture_group(group, image, &mut descriptors, &mut captured)?;
                    }
                }
                Dirty::OrphanList(lane) => {
                    self.orphans.take_list(tid, lane);
                    orphans_changed = true;
                }
                Dirty::NewOwner(kind, id) => fold.add_owner(kind, id),
                Dirty::Growth(_) => {}
            }
        }
        let chain = orphans_changed.then(|| self.orphans.chain());
        let growth = growth.as_deref();
        let used =
            self.capture_tables(extended, chain.as_ref(), growth, &mut captured, &mut fold)?;
        if let Some(quotas) = self.mount.quotas() {
            for (block, bytes) in quotas.fold(fold) {
                captured.image(block, bytes);
            }
        }
        let head = chain.map(|chain| chain.head);
        for (block, bytes) in descriptors.blocks {
            captured.image(block, bytes.into());
        }
        if growth.is_some() {
            // Before e2fsck and the kernel replay the log, they check the descriptors of all groups
            // that the file system has according to the superblock. So the new descriptors are
            // written in place before the superblock.
            captured.write_in_place_last(self.volume.geometry().super_block());
        }
        if groups_changed || head.is_some() || growth.is_some() || self.superblock.lacks(used) {
            let blocks = growth.map(|growth| growth.new.block_count());
            let free = self.groups.captured_counts();
            let superblock = self.superblock.capture(free, head, blocks, used)?;
            captured.image(self.volume.geometry().super_block(), superblock);
        }
        Ok(())
    }

    /// Adds the initial descriptors of new groups. If a new group has already changed, the capture
    /// of the group replaces the initial descriptor later.
    fn capture_growth(
        &self,
        growth: &Growth,
        descriptors: &mut Shared,
        captured: &mut Captured<'_>,
    ) -> Result<(), Error> {
        for (group, desc) in growth.groups() {
            let (index, bytes) = growth.new.desc_place(group).ok_or(Error::Stale)?;
            let block = growth.new.desc_block(index).ok_or(Error::Stale)?;
            let base = || growth.base(index, self);
            let record = descriptors.patch(block, base)?.get_mut(bytes).ok_or(Error::Stale)?;
            desc.encode_into(record, group, &growth.new, self.volume.checksums);
        }
        if let Some(resize) = &growth.resize {
            for (block, bytes) in &resize.blocks {
                captured.image(*block, bytes.as_slice().into());
            }
        }
        self.groups.captured_new(&growth.descriptors);
        Ok(())
    }

    fn capture_group(
        &self,
        group: Group,
        image: GroupImage,
        descriptors: &mut Shared,
        captured: &mut Captured<'_>,
    ) -> Result<(), Error> {
        if let Some(bitmap) = image.block_bitmap {
            captured.image(image.desc.block_bitmap, bitmap);
        }
        if let Some(bitmap) = image.inode_bitmap {
            captured.image(image.desc.inode_bitmap, bitmap);
        }
        let volume = &self.volume;
        let (block, bytes) = volume.descriptor_place(group)?;
        // This reads the block's newest captured image, which stays in the journal's store until it
        // is written in place.
        let base = || self.read_block(block);
        let record = descriptors.patch(block, base)?.get_mut(bytes).ok_or(Error::Stale)?;
        image.desc.encode_into(record, group, volume.geometry(), volume.checksums);
        Ok(())
    }

    /// Patches the captured records into their table blocks. If the orphan chain changed, also
    /// patches the changed links into the records. For each record, adds the change of its owners'
    /// usage to `fold`. Returns the features that the records use.
    fn capture_tables(
        &self,
        extended: Vec<(Group, u32)>,
        chain: Option<&Chain>,
        growth: Option<&Growth>,
        captured: &mut Captured<'_>,
        fold: &mut Fold,
    ) -> Result<UsedFeatures, Error> {
        let mut used = UsedFeatures::NONE;
        let mut tables = Shared::default();
        let mut pinned = BTreeMap::new();
        for (ino, CapturedRecord { mut record, table, offset }) in captured.take_records() {
            let copy = tables.patch(table.block, || self.tables.base(&table, self))?;
            if let Some(next) = self.orphans.next_of(ino) {
                record.disk.dtime = next.0;
            }
            if let Some(quotas) = self.mount.quotas() {
                let before = self.volume.record_in(copy, offset).ok_or(Error::Stale)?;
                let before = disk::Inode::decode_unchecked(before, self.volume.geometry());
                let after = (!record.freed).then_some(&record.disk);
                quotas.count(fold, ino, before.as_ref(), after);
            }
            if self.volume.can_add_features && !record.freed {
                used.add(&record, self.volume.geometry());
            }
            record.patch_into(&self.volume, ino, copy, offset)?;
            pinned.insert(table.block, table);
        }
        for ino in chain.map(|chain| chain.changed.as_slice()).unwrap_or_default() {
            let place = self.volume.inode_place(*ino)?;
            let table = self.table_block(place.group, place.table_block)?;
            let copy = tables.patch(table.block, || self.tables.base(&table, self))?;
            chain_record(&self.volume, *ino, self.orphans.next_of(*ino), copy, place.offset)?;
            pinned.insert(table.block, table);
        }
        if let Some(resize) = growth.and_then(|growth| growth.resize.as_ref()) {
            let place = self.volume.inode_place(Ino::RESIZE)?;
            let table = self.table_block(place.group, place.table_block)?;
            let copy = tables.patch(table.block, || self.tables.base(&table, self))?;
            let (geometry, checksums) = (self.volume.geometry(), self.volume.checksums);
            let end = place.offset + geometry.inode_size();
            let record = copy.get_mut(place.offset..end).ok_or(Error::Stale)?;
            let mut inode = disk::Inode::decode(record, Ino::RESIZE, geometry, checksums)?;
            inode.sectors = resize.sectors;
            let encoded = inode.encode_into(record, Ino::RESIZE, geometry, checksums);
            encoded.map_err(|_| Error::FileTooLarge)?;
            pinned.insert(table.block, table);
        }
        for (group, index) in extended {
            let table = self.table_block(group, index)?;
            tables.patch(table.block, || self.tables.base(&table, self))?;
            pinned.insert(table.block, table);
        }
        for (block, bytes) in tables.blocks {
            let bytes: Arc<[u8]> = bytes.into();
            captured.image(block, bytes.clone());
            if let Some(table) = pinned.get(&block) {
                table.set_base(bytes);
                // From here on the block's image is in the store, so later reads do not go to the
                // device.
                self.tables.set_initialised(table.group, table.index + 1);
            }
        }
        Ok(used)
    }
}
