//! What handles collect: the objects that a transaction changed, and what follows once it is durable.

use crate::alloc::Changes;
use crate::object::record::Record;
use crate::object::table::TableRef;
use crate::volume::Volume;
use crate::volume::kind::MetaKind;
use lanefs_journal::{Images, Tid};
use lanefs_lanes::Lane;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::{Block, Group, Ino};
use std::collections::BTreeMap;

/// A handle on a transaction of this file system.
pub(crate) type Handle<'j> = lanefs_journal::Handle<'j, Dirty, Deferred>;

/// An object that a transaction changed.
pub(crate) enum Dirty {
    /// One that has its own image: an inode, a metadata block.
    Object(Arc<dyn Journaled>),
    /// A group's bitmaps and descriptor.
    Group(Group),
    /// A lane's part of the orphan list, chained through inodes at capture.
    OrphanList(Lane),
}

/// What happens once a transaction is durable.
pub(crate) enum Deferred {
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

/// An object that a commit captures.
pub(crate) trait Journaled: Send + Sync {
    /// Committer: hands over the image as of `tid`, unless it was taken already.
    fn capture(&self, tid: Tid, into: &mut Captured<'_>);
}

/// What a commit captures of inodes and metadata blocks.
pub(crate) struct Captured<'c> {
    volume: &'c Volume,
    images: &'c mut Images,
    records: BTreeMap<Ino, CapturedRecord>,
}

/// An inode's record, and where it goes.
pub(crate) struct CapturedRecord {
    pub(crate) record: Box<Record>,
    pub(crate) table: TableRef,
    pub(crate) offset: usize,
}

impl<'c> Captured<'c> {
    pub(crate) fn new(volume: &'c Volume, images: &'c mut Images) -> Captured<'c> {
        Captured { volume, images, records: BTreeMap::new() }
    }

    /// A metadata block's contents, without their checksum.
    pub(crate) fn block(&mut self, block: Block, kind: MetaKind, data: Arc<[u8]>) {
        self.image(block, kind.seal(self.volume, block, data));
    }

    /// A whole block as it is.
    pub(crate) fn image(&mut self, block: Block, bytes: Arc<[u8]>) {
        self.images.push(block, bytes);
    }

    /// The record of inode `ino`.
    pub(crate) fn record(&mut self, ino: Ino, new: CapturedRecord) {
        let record = &new.record;
        // A number freed and claimed again in one transaction has two objects: the living one is what
        // the number means now. Of two dead ones it is the later: generations must not go back.
        let stale = |other: &Record| record.freed && (!other.freed || other.is_after(record));
        if !self.records.get(&ino).is_some_and(|other| stale(&other.record)) {
            self.records.insert(ino, new);
        }
    }

    /// The records that were captured.
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
