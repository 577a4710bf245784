//! What the journal asks of the file system: images of dirty objects, and what follows a commit.

use crate::Error;
use crate::alloc::Changes;
use crate::fs::Fs;
use crate::object::inode::Inode;
use crate::object::meta::MetaBlock;
use crate::object::orphan::Chain;
use crate::object::record::Record;
use lanefs_journal::{Client, Images, Tid};
use lanefs_lanes::Lane;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, Group, Ino};
use std::collections::BTreeMap;

/// A handle on a transaction of this file system.
pub(crate) type Handle<'j> = lanefs_journal::Handle<'j, Fs>;

/// An object that a transaction changed.
pub enum Dirty {
    /// An inode's record.
    Inode(Arc<Inode>),
    /// A group's bitmaps and descriptor.
    Group(Group),
    /// A metadata block.
    #[allow(private_interfaces)]
    // the enum is public as the journal's associated type, not exported
    Meta(Arc<MetaBlock>),
    /// A lane's part of the orphan list, chained through inodes at capture.
    OrphanList(Lane),
}

/// What happens once a transaction is durable.
pub enum Deferred {
    /// These blocks can be claimed again.
    Free {
        /// First block.
        start: Block,
        /// How many.
        len: u32,
    },
    /// The rest of a block beyond a new end of file is zeroed, for readers that trust it to be.
    ZeroTail {
        /// Where, in bytes on the device.
        offset: u64,
        /// How many bytes.
        len: u32,
    },
}

impl Changes for Handle<'_> {
    fn tid(&self) -> Tid {
        lanefs_journal::Handle::tid(self)
    }

    fn group_changed(&mut self, group: Group) {
        self.dirty(Dirty::Group(group));
    }

    fn charge_blocks(&mut self, blocks: u32) {
        self.charge(blocks);
    }

    fn release_later(&mut self, start: Block, len: u32) {
        self.defer(Deferred::Free { start, len });
    }
}

impl Client for Fs {
    type Object = Dirty;
    type Deferred = Deferred;

    fn capture(
        &self,
        tid: Tid,
        objects: Vec<Dirty>,
        images: &mut Images,
    ) -> Result<(), lanefs_journal::Error> {
        self.capture_objects(tid, objects, images).map_err(journal_error)
    }

    fn committed(&self, tid: Tid, deferred: Vec<Deferred>) -> Result<(), lanefs_journal::Error> {
        // Tails first: a block that was cut and then freed is another's as soon as it is released.
        for done in &deferred {
            if let Deferred::ZeroTail { offset, len } = *done {
                self.device.write_zeros(offset, u64::from(len))?;
                self.journal.note_write();
            }
        }
        for done in deferred {
            if let Deferred::Free { start, len } = done {
                self.groups.release(start, len);
            }
        }
        self.groups.committed(tid);
        Ok(())
    }

    fn settled(&self, _tid: Tid) {
        self.reclaim_after_commit();
    }

    fn aborted(&self, cause: &lanefs_journal::Error) {
        self.become_read_only();
        // A device that takes no more writes cannot remember it either.
        let _ = self.record_abort(cause);
    }
}

/// An error while capturing aborts the journal; it carries the cause.
fn journal_error(error: Error) -> lanefs_journal::Error {
    match error {
        Error::Journal(error) => error,
        Error::Device(error) => error.into(),
        other => lanefs_journal::Error::client(other),
    }
}

/// The blocks that many objects share, patched copy by copy while one transaction is captured.
#[derive(Default)]
struct Shared {
    blocks: BTreeMap<Block, Vec<u8>>,
}

impl Shared {
    /// The copy of `block`, begun from `base`.
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

impl Fs {
    fn capture_objects(
        &self,
        tid: Tid,
        objects: Vec<Dirty>,
        images: &mut Images,
    ) -> Result<(), Error> {
        let mut records: BTreeMap<Ino, (Arc<Inode>, Box<Record>)> = BTreeMap::new();
        let mut descriptors = Shared::default();
        let mut groups_changed = false;
        // Table blocks that come into use: written even if none of their inodes is.
        let mut extended = Vec::new();
        let mut orphans_changed = false;
        for object in objects {
            match object {
                Dirty::Group(group) => {
                    if let Some(image) = self.groups.capture(tid, group) {
                        groups_changed = true;
                        let unwritten = self.tables.extend(&self.geometry, group, &image.desc);
                        extended.extend(unwritten.map(|index| (group, index)));
                        self.emit_group(group, image, &mut descriptors, images)?;
                    }
                }
                Dirty::Meta(block) => {
                    if let Some(data) = block.take(tid) {
                        images.push(block.block, self.seal(block.block, block.kind, data));
                    }
                }
                Dirty::Inode(inode) => {
                    let Some(record) = inode.take(tid) else { continue };
                    // A number freed and claimed again in one transaction has two objects: the
                    // living one is what the number means now.
                    match records.get(&inode.ino) {
                        Some((_, other)) if record.freed && !other.freed => {}
                        // Of two dead ones the later: generations must not go back.
                        Some((_, other)) if record.freed && other.is_after(&record) => {}
                        _ => drop(records.insert(inode.ino, (inode, record))),
                    }
                }
                Dirty::OrphanList(lane) => {
                    self.orphans.take_list(tid, lane);
                    orphans_changed = true;
                }
            }
        }
        let chain = orphans_changed.then(|| self.orphans.chain());
        self.emit_inodes(records, extended, chain.as_ref(), images)?;
        let head = chain.map(|chain| chain.head);
        for (block, bytes) in descriptors.blocks {
            let bytes: Arc<[u8]> = bytes.into();
            self.superblock.set_descriptor_block(block, bytes.clone());
            images.push(block, bytes);
        }
        if groups_changed || head.is_some() {
            let counts = self.groups.captured_counts();
            images.push(self.geometry.super_block(), self.superblock.capture(counts, head));
        }
        Ok(())
    }

    fn emit_group(
        &self,
        group: Group,
        image: crate::alloc::GroupImage,
        descriptors: &mut Shared,
        images: &mut Images,
    ) -> Result<(), Error> {
        if let Some(bitmap) = image.block_bitmap {
            images.push(image.desc.block_bitmap, bitmap);
        }
        if let Some(bitmap) = image.inode_bitmap {
            images.push(image.desc.inode_bitmap, bitmap);
        }
        let (block, bytes) = self.descriptor_place(group)?;
        let copy = descriptors.patch(block, || self.superblock.descriptor_block(self, block))?;
        let record = copy.get_mut(bytes).ok_or(Error::Stale)?;
        image.desc.encode_into(record, group, &self.geometry, self.checksums);
        Ok(())
    }

    /// Patches the records into their table blocks, and with them the orphan chain if it is a new one.
    fn emit_inodes(
        &self,
        records: BTreeMap<Ino, (Arc<Inode>, Box<Record>)>,
        extended: Vec<(Group, u32)>,
        chain: Option<&Chain>,
        images: &mut Images,
    ) -> Result<(), Error> {
        let mut tables = Shared::default();
        let mut pinned = BTreeMap::new();
        for (ino, (inode, record)) in records {
            let table = &inode.table;
            let copy = tables.patch(table.block, || table.base(self))?;
            let mut disk = record.disk;
            if let Some(next) = self.orphans.next_of(ino) {
                disk.dtime = next.0;
            }
            self.encode_record(ino, &disk, &record.raw, copy, inode.offset)?;
            pinned.insert(table.block, table.clone());
        }
        for ino in chain.map(|chain| chain.changed.as_slice()).unwrap_or_default() {
            let place = self.geometry.inode_place(*ino).ok_or(Error::Stale)?;
            let table = self.table_block(place.group, place.table_block)?;
            let copy = tables.patch(table.block, || table.base(self))?;
            self.chain_record(*ino, self.orphans.next_of(*ino), copy, place.offset)?;
            pinned.insert(table.block, table);
        }
        for (group, index) in extended {
            let table = self.table_block(group, index)?;
            tables.patch(table.block, || table.base(self))?;
            pinned.insert(table.block, table);
        }
        for (block, bytes) in tables.blocks {
            let bytes: Arc<[u8]> = bytes.into();
            images.push(block, bytes.clone());
            if let Some(table) = pinned.get(&block) {
                table.set_base(bytes);
                // Its image is in the store from here on, so that nobody reads the device for it.
                self.tables.set_initialised(table.group, table.index + 1);
            }
        }
        Ok(())
    }
}
