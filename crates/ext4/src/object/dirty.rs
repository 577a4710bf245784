//! The objects that a transaction changed, and the work that is deferred until the transaction is
//! durable.

use crate::alloc::Changes;
use crate::object::growth::Growth;
use crate::object::record::Record;
use crate::object::table::TableRef;
use crate::volume::Volume;
use crate::volume::kind::MetaKind;
use lanefs_journal::{Images, Tid};
use lanefs_lanes::Lane;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::quota::Kind;
use lanefs_ondisk::{Block, Group, Ino};
use std::collections::BTreeMap;

/// A handle on a transaction of this file system.
pub(crate) type Handle<'j> = lanefs_journal::Handle<'j, Dirty, Deferred>;

/// An object that a transaction changed.
pub(crate) enum Dirty {
    /// An object that has its own image: an inode or a metadata block.
    Object(Arc<dyn Journaled>),
    /// A group's bitmaps and descriptor.
    Group(Group),
    /// A lane's part of the orphan list. The capture chains the whole list through the inodes'
    /// deletion times.
    OrphanList(Lane),
    /// The id of a user, group or project. The capture adds the id to the quota file for this kind
    /// of owner, unless the file already has it.
    NewOwner(Kind, u32),
    /// Groups that were added at the end of the file system.
    Growth(Arc<Growth>),
}

/// Describes work that runs after a transaction has become durable.
pub(crate) enum Deferred {
    /// Releases these blocks, so that they can be claimed again.
    Free {
        /// The first block.
        start: Block,
        /// The number of blocks.
        len: u32,
    },
    /// Zeroes the part of a block that lies beyond a new end of file, because readers rely on zeros
    /// there.
    ZeroTail {
        /// The byte offset on the device.
        offset: u64,
        /// The number of bytes.
        len: u32,
    },
}

/// An object that a commit captures.
pub(crate) trait Journaled: Send + Sync {
    /// Committer: adds the image as of `tid` to `into`, unless it was taken already.
    fn capture(&self, tid: Tid, into: &mut Captured<'_>);
}

/// Collects the inodes and metadata blocks that a commit captures.
pub(crate) struct Captured<'c> {
    volume: &'c Volume,
    images: &'c mut Images,
    records: BTreeMap<Ino, CapturedRecord>,
}

/// Holds an inode's record and its position in the inode table.
pub(crate) struct CapturedRecord {
    pub(crate) record: Box<Record>,
    pub(crate) table: TableRef,
    pub(crate) offset: usize,
}

impl<'c> Captured<'c> {
    pub(crate) fn new(volume: &'c Volume, images: &'c mut Images) -> Captured<'c> {
        Captured { volume, images, records: BTreeMap::new() }
    }

    /// Adds a metadata block with the contents `data`, and sets the checksum in the added copy.
    pub(crate) fn block(&mut self, block: Block, kind: MetaKind, data: Arc<[u8]>) {
        self.image(block, kind.seal(self.volume, block, data));
    }

    /// Adds a whole block unchanged.
    pub(crate) fn image(&mut self, block: Block, bytes: Arc<[u8]>) {
        self.images.push(block, bytes);
    }

    /// Requests that `block` is written in place after all other blocks
    /// ([`Images::write_in_place_last`]).
    pub(crate) fn write_in_place_last(&mut self, block: Block) {
        self.images.write_in_place_last(block);
    }

    /// Adds the record of inode `ino`.
    pub(crate) fn record(&mut self, ino: Ino, new: CapturedRecord) {
        let record = &new.record;
        // An inode number that was freed and claimed again in one transaction has two objects. The
        // record of the live object is kept. If both objects are freed, the later record is kept,
        // because the generation on the device must not decrease.
        let stale = |other: &Record| record.freed && (!other.freed || other.is_after(record));
        if !self.records.get(&ino).is_some_and(|other| stale(&other.record)) {
            self.records.insert(ino, new);
        }
    }

    /// Takes the captured records.
    pub(crate) fn take_records(&mut self) -> BTreeMap<Ino, CapturedRecord> {
        std::mem::take(&mut self.records)
    }
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
