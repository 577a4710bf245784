//! The objects that a transaction changed, and the work that is deferred until the transaction is
//! durable.

use crate::alloc::Changes;
use crate::object::table::TableRef;
use crate::volume::{BlockReader, MetaKind, Volume};
use lanefs_journal::{Images, Tid};
use lanefs_lanes::Lane;
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::quota::Kind;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Group, Ino, inode as disk};
use lanefs_plan::Error;
use lanefs_plan::Expected;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// A handle on a transaction of this file system.
pub(crate) type Handle<'j> = lanefs_journal::Handle<'j, Dirty, Deferred>;

/// What an operation, or a part of one, may add to a transaction. Each part states its credits
/// beside the function that applies it, and the operation joins with the sum ([`Fs::join`]).
///
/// [`Fs::join`]: crate::object::fs::Fs::join
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credits {
    /// Blocks, apart from those of quota files.
    pub(crate) blocks: u32,
    /// Inodes whose usage may change. Each may change an entry in every quota file.
    pub(crate) owners: u32,
}

impl Credits {
    /// A change of an inode: its block of the inode table, and the entries of its owners.
    pub(crate) const INODE: Credits = Credits { blocks: 1, owners: 1 };
    /// The allocation or freeing of a run of blocks in one group: a bitmap and a descriptor.
    pub(crate) const RUN: Credits = Credits::blocks(2);
    /// The allocation of an inode's number. The first one in a group changes both bitmaps.
    pub(crate) const NEW_NUMBER: Credits = Credits::blocks(3);
    /// The freeing of an inode's number.
    pub(crate) const OLD_NUMBER: Credits = Credits::blocks(2);

    pub(crate) const fn blocks(blocks: u32) -> Credits {
        Credits { blocks, owners: 0 }
    }

    /// The credits for `n` revokes: one pays for at least 64, whatever the block size and the log
    /// format.
    pub(crate) const fn revokes(n: usize) -> Credits {
        Credits::blocks(1).times(n.div_ceil(64))
    }

    /// Returns the sum.
    pub(crate) const fn and(self, more: Credits) -> Credits {
        Credits { blocks: self.blocks + more.blocks, owners: self.owners + more.owners }
    }

    /// Returns what covers either of two parts, of which an operation applies only one.
    pub(crate) const fn or(self, other: Credits) -> Credits {
        let blocks = if self.blocks > other.blocks { self.blocks } else { other.blocks };
        let owners = if self.owners > other.owners { self.owners } else { other.owners };
        Credits { blocks, owners }
    }

    /// Returns the credits of `n` such parts.
    pub(crate) const fn times(self, n: usize) -> Credits {
        Credits { blocks: self.blocks * n as u32, owners: self.owners * n as u32 }
    }
}

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

    fn changes(&mut self, what: &str, number: u32) {
        lanefs_journal::Handle::changes(self, (what, number));
    }

    fn charge_blocks(&mut self, blocks: u32) {
        self.charge(blocks);
    }

    fn release_later(&mut self, start: Block, len: u32) {
        self.defer(Deferred::Free { start, len });
    }
}

// Handles an inode's record: the bytes of the inode in a block of the inode table.

/// Holds a record's bytes as they were read or will be written. They are needed for the part that
/// [`disk::Inode`] does not decode: the attributes in the inode. A new inode has no bytes until it
/// gets attributes.
#[derive(Clone, Default)]
pub(crate) struct RawRecord {
    /// The bytes; `None` means all zeros.
    bytes: Option<Box<[u8]>>,
}

impl RawRecord {
    /// Copies the bytes of a record that was read from the inode table.
    pub(crate) fn read(bytes: &[u8]) -> RawRecord {
        RawRecord { bytes: Some(bytes.into()) }
    }

    /// Returns the bytes in `area`, or an empty slice if the record is too short to contain `area`.
    pub(crate) fn area(&self, area: Range<usize>) -> Cow<'_, [u8]> {
        match &self.bytes {
            Some(bytes) => bytes.get(area).unwrap_or_default().into(),
            None => vec![0; area.len()].into(),
        }
    }

    /// Returns whether bytes were read or set.
    pub(crate) fn has_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    /// Sets the bytes in `area` of a record of `len` bytes.
    pub(crate) fn set(&mut self, len: usize, area: Range<usize>, bytes: &[u8]) {
        let record = self.bytes.get_or_insert_with(|| vec![0; len].into());
        if let Some(kept) = record.get_mut(area) {
            kept.copy_from_slice(bytes);
        }
    }

    /// Overwrites the whole `record` with these bytes.
    pub(crate) fn write_to(&self, record: &mut [u8]) {
        match &self.bytes {
            Some(bytes) => record.copy_from_slice(bytes),
            None => record.fill(0),
        }
    }
}

/// An inode's record as of one transaction.
pub(crate) struct Record {
    pub(crate) disk: disk::Inode,
    pub(crate) raw: RawRecord,
    pub(crate) freed: bool,
}

impl Record {
    /// Copies the record for a transaction.
    pub(crate) fn of(disk: &disk::Inode, raw: &RawRecord, freed: bool) -> Box<Record> {
        Box::new(Record { disk: disk.clone(), raw: raw.clone(), freed })
    }

    /// Patches the record into a copy of its table block.
    pub(crate) fn patch_into(
        &self,
        volume: &Volume,
        ino: Ino,
        table: &mut [u8],
        offset: usize,
    ) -> Result<(), Error> {
        let len = volume.geometry().inode_size();
        let record = table.get_mut(offset..offset + len).expected()?;
        self.raw.write_to(record);
        encode(volume, ino, &self.disk, record)
    }

    /// Returns the bytes of the record.
    pub(crate) fn encoded(&self, volume: &Volume, ino: Ino) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; volume.geometry().inode_size()];
        self.patch_into(volume, ino, &mut bytes, 0)?;
        Ok(bytes)
    }

    /// Compares this record with `other`, a record of an inode with the same number. Returns
    /// whether this record belongs to the later inode.
    pub(crate) fn is_after(&self, other: &Record) -> bool {
        self.disk.generation.wrapping_sub(other.disk.generation) as i32 > 0
    }
}

/// Where an inode is recorded as an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrphanSlot {
    /// Slot `slot` of block `block` of the orphan file.
    File { block: usize, slot: usize },
    /// Entry `number` of the list of `lane`.
    List { lane: Lane, number: u64 },
}

/// Patches the deletion time in a record that has no other change. The legacy orphan list is
/// chained through the deletion times.
pub(crate) fn chain_record(
    volume: &Volume,
    ino: Ino,
    next: Option<Ino>,
    table: &mut [u8],
    offset: usize,
) -> Result<(), Error> {
    let len = volume.geometry().inode_size();
    let record = table.get_mut(offset..offset + len).expected()?;
    let mut disk = disk::Inode::decode(record, ino, volume.geometry(), volume.checksums)?;
    disk.dtime = next.map_or(0, |next| next.0);
    encode(volume, ino, &disk, record)
}

fn encode(volume: &Volume, ino: Ino, disk: &disk::Inode, record: &mut [u8]) -> Result<(), Error> {
    disk.encode_into(record, ino, volume.geometry(), volume.checksums)
        .map_err(|_| Error::internal())
}

// What only the committer writes when the file system grows: descriptors, the resize inode, and
// the superblock.

/// Groups that one transaction adds.
pub(crate) struct Growth {
    pub(crate) old: Geometry,
    pub(crate) new: Geometry,
    /// The descriptors of the new groups. The inode tables of these groups were written before the
    /// transaction. So were their bitmaps, except those that the descriptors mark as uninitialised.
    pub(crate) descriptors: Vec<GroupDesc>,
    /// The resize inode, if it changes.
    pub(crate) resize: Option<ResizeInode>,
}

/// The inode that reserves blocks for descriptors.
pub(crate) struct ResizeInode {
    /// The blocks of the inode that change, with their new contents.
    pub(crate) blocks: Vec<(Block, Vec<u8>)>,
    pub(crate) sectors: u64,
}

impl Growth {
    /// Returns the new groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Group, &GroupDesc)> {
        (self.old.group_count()..).map(Group).zip(&self.descriptors)
    }

    /// Returns the indexes of the descriptor blocks that change.
    pub(crate) fn changed(&self) -> std::ops::Range<u32> {
        let per_block = self.new.descs_per_block();
        let last = self.old.group_count() + self.descriptors.len() as u32;
        self.old.group_count() / per_block..last.div_ceil(per_block)
    }

    /// Returns block `index` of the descriptors as it was before the groups were added.
    pub(crate) fn base(&self, index: u32, reader: &impl BlockReader) -> Result<Arc<[u8]>, Error> {
        // A block beyond the old descriptors either did not exist or was only reserved for
        // descriptors, so its contents on the device are not descriptors.
        if index >= self.old.desc_blocks() {
            return Ok(vec![0; self.new.block_size().bytes()].into());
        }
        reader.read_block(self.new.desc_block(index).expected()?)
    }

    /// Returns the number of blocks that the growth adds to a transaction, apart from those of the
    /// last old group.
    pub(crate) fn blocks(&self) -> u32 {
        let resize = self.resize.as_ref().map_or(0, |resize| resize.blocks.len() + 1);
        self.changed().len() as u32 + resize as u32
    }

    /// The last old group may get more blocks. The commit counts no owner for a growth.
    pub(crate) fn credits(&self) -> Credits {
        Credits::blocks(self.blocks()).and(Credits::RUN)
    }
}
