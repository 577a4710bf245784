//! Records orphans: inodes that the next mount must delete, or finish truncating, after a crash.
//!
//! With the feature `orphan_file` their numbers are stored in slots of the orphan file, where each
//! lane starts its search for a free slot at a different block. Without the feature, or when the
//! file is full, each lane has a list in memory. At capture the committer chains all lists through
//! the inodes' deletion times (the legacy list).

use crate::attr::now;
use crate::object::dirty::{Credits, Dirty, Handle, OrphanSlot, Record};
use crate::object::inode::Inode;
use crate::object::meta::MetaRef;
use crate::object::state::Concerns;
use crate::volume::Volume;
use lanefs_journal::{Tid, Tracked};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Lane, LaneCounter, Mutex, PerLane, Rank};
use lanefs_mkfs::resize;
use lanefs_mkfs::resize::SizeError;
use lanefs_ondisk::features::{Compat, RoCompat};
use lanefs_ondisk::superblock::{ErrorCode, ErrorRecord, Geometry, Superblock};
use lanefs_ondisk::{FileType, Ino, orphan as disk};
use lanefs_plan::{CannotGrow, Error};
use std::collections::{BTreeMap, HashMap};

/// Holds the orphans of a mount.
pub(crate) struct Orphans {
    /// The blocks of the orphan file, pinned; not set without the feature.
    file: OnceLock<Vec<MetaRef>>,
    /// The number of entries in the orphan file.
    file_entries: LaneCounter,
    /// [guard] Each lane's part of the legacy list.
    lists: PerLane<Mutex<List>>,
    /// The list as it was last captured. [used by the committer only]
    chained: Mutex<Chained>,
}

/// A lane's part of the legacy list.
struct List {
    /// The inodes in order of insertion. The order is stable, so few records change from one commit
    /// to the next: an insertion or removal changes only the record of the inode and the record of
    /// the inode that points to it.
    inos: BTreeMap<u64, Ino>,
    next: u64,
    tracked: Tracked<Vec<Ino>>,
}

impl List {
    fn push(&mut self, ino: Ino) -> u64 {
        let number = self.next;
        self.next += 1;
        self.inos.insert(number, ino);
        number
    }
}

fn image(inos: &BTreeMap<u64, Ino>) -> Vec<Ino> {
    inos.values().copied().collect()
}

/// The legacy list as last captured.
#[derive(Default)]
struct Chained {
    /// The parts by lane number; the newest entry of a part is last.
    parts: BTreeMap<usize, Vec<Ino>>,
    /// For each inode, the number of the next inode in the chain, as stored in the inode's record.
    next: HashMap<Ino, Ino>,
}

/// The result of chaining the legacy list again.
pub(crate) struct Chain {
    /// The newest entry, for the superblock; 0 if the list is empty.
    pub(crate) head: Ino,
    /// Inodes whose record must be changed.
    pub(crate) changed: Vec<Ino>,
}

impl Orphans {
    pub(crate) fn new() -> Orphans {
        let list = || List { inos: BTreeMap::new(), next: 0, tracked: Tracked::new() };
        Orphans {
            file: OnceLock::new(),
            file_entries: LaneCounter::new(0),
            lists: PerLane::new(|_| Mutex::new(Rank::Guard, list())),
            chained: Mutex::new(Rank::Journal, Chained::default()),
        }
    }

    /// Returns the blocks of the orphan file.
    fn blocks(&self) -> &[MetaRef] {
        self.file.get().map_or(&[], Vec::as_slice)
    }

    /// Pins the blocks of the orphan file, which have `entries` entries in total. Called once, at
    /// mount, before any inode is deleted.
    pub(crate) fn set_file(&self, blocks: Vec<MetaRef>, entries: usize) {
        let set = self.file.set(blocks);
        debug_assert!(set.is_ok(), "the orphan file is opened once");
        self.file_entries.add(entries as i64);
    }

    /// Returns whether the orphan file was read.
    pub(crate) fn has_file(&self) -> bool {
        self.file.get().is_some()
    }

    /// Returns whether the orphan file has entries.
    pub(crate) fn are_in_file(&self) -> bool {
        self.file_entries.sum() > 0
    }

    /// At mount: adds inodes that are already on the list on disk, and returns their positions in
    /// the list.
    pub(crate) fn adopt_list(&self, inos: impl Iterator<Item = Ino>) -> Vec<(Ino, OrphanSlot)> {
        let lane = Lane::current();
        let mut list = self.lists.of(lane).lock();
        let places =
            inos.map(|ino| (ino, OrphanSlot::List { lane, number: list.push(ino) })).collect();
        let part = image(&list.inos);
        drop(list);
        self.chained.lock().parts.insert(lane.index(), part);
        self.chain();
        places
    }

    /// Committer: takes the lane's part of the list as of `tid`.
    pub(crate) fn take_list(&self, tid: Tid, lane: Lane) {
        let mut list = self.lists.of(lane).lock();
        let List { inos, tracked, .. } = &mut *list;
        let taken = tracked.take(tid, || image(inos));
        drop(list);
        if let Some(part) = taken {
            self.chained.lock().parts.insert(lane.index(), part);
        }
    }

    /// Committer: chains the lists that [`Orphans::take_list`] took.
    pub(crate) fn chain(&self) -> Chain {
        let mut chained = self.chained.lock();
        let mut next = HashMap::new();
        let mut head = Ino(0);
        for ino in chained.parts.values().flatten() {
            next.insert(*ino, head);
            head = *ino;
        }
        let is_new = |(ino, to): &(&Ino, &Ino)| chained.next.get(ino) != Some(*to);
        let mut changed: Vec<Ino> = next.iter().filter(is_new).map(|(ino, _)| *ino).collect();
        changed.sort();
        chained.next = next;
        Chain { head, changed }
    }

    /// Committer: returns the number that `ino`'s record must have as its deletion time.
    pub(crate) fn next_of(&self, ino: Ino) -> Option<Ino> {
        self.chained.lock().next.get(&ino).copied()
    }

    fn change_list<R>(
        &self,
        handle: &mut Handle<'_>,
        lane: Lane,
        ino: Ino,
        change: impl FnOnce(&mut List) -> R,
    ) -> R {
        let mut list = self.lists.of(lane).lock();
        let List { inos, tracked, .. } = &mut *list;
        let newly = tracked.touch(handle.tid(), || image(inos));
        let result = change(&mut list);
        drop(list);
        if newly {
            handle.dirty(Dirty::OrphanList(lane));
        }
        // One credit is charged for the record of the inode that points to this inode in the chain,
        // because that record changes too.
        handle.changes(("orphan beside", ino));
        handle.charge(1);
        result
    }

    /// The credits for adding or removing a record, apart from those of the inode: the block of the
    /// orphan file, and the record of another inode in the list. An addition that finds the block
    /// full at the last moment has changed both.
    pub(crate) const RECORD: Credits = Credits::blocks(1).and(Credits::blocks(1));

    /// Apply: records `inode` as an orphan, if it is not recorded yet. Uses [`Orphans::RECORD`] and
    /// the credits of the inode.
    pub(crate) fn add(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
        if inode.state.lock().orphan.is_some() {
            return;
        }
        let place = self.take_slot(handle, inode.ino).unwrap_or_else(|| {
            let lane = Lane::current();
            let number = self.change_list(handle, lane, inode.ino, |list| list.push(inode.ino));
            OrphanSlot::List { lane, number }
        });
        inode.change(handle, Concerns::Attributes, |state| {
            state.orphan = Some(place);
            state.disk.dtime = 0;
        });
    }

    /// Apply: removes the record of an inode whose truncation, or other work that a crash would have
    /// left to the next mount, is finished. An inode without a name stays an orphan. Uses the same
    /// credits as [`Orphans::add`].
    ///
    /// # Locking
    /// The caller holds the operation lock exclusively, so that the inode neither gets nor loses a
    /// name meanwhile.
    pub(crate) fn finish(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
        if inode.links() > 0 {
            self.remove(handle, inode);
        }
    }

    /// Apply: removes the orphan record of `inode`, which gets a name or is deleted. Uses the same
    /// credits as [`Orphans::add`].
    pub(crate) fn remove(&self, handle: &mut Handle<'_>, inode: &Arc<Inode>) {
        let Some(place) = inode.state.lock().orphan else { return };
        match place {
            OrphanSlot::File { block, slot } => {
                self.blocks()[block].change(handle, |data| {
                    disk::set_slot(Arc::make_mut(data), slot, None);
                });
                self.file_entries.add(-1);
            }
            OrphanSlot::List { lane, number } => {
                self.change_list(handle, lane, inode.ino, |list| list.inos.remove(&number));
            }
        }
        inode.change(handle, Concerns::Attributes, |state| {
            state.orphan = None;
            state.disk.dtime = 0;
        });
    }

    /// Writes `ino` into a free slot, trying the lane's own block first. Returns `None` if there is
    /// none, or if other lanes took the last ones of a block meanwhile.
    fn take_slot(&self, handle: &mut Handle<'_>, ino: Ino) -> Option<OrphanSlot> {
        let (blocks, first) = (self.blocks(), Lane::current().index());
        let has_room = |block: &usize| disk::free_slot(&blocks[*block].data()).is_some();
        let block = (0..blocks.len()).map(|n| (first + n) % blocks.len()).find(has_room)?;
        let slot = blocks[block].change(handle, |data| {
            let slot = disk::free_slot(data)?;
            disk::set_slot(Arc::make_mut(data), slot, Some(ino));
            Some(slot)
        })?;
        self.file_entries.add(1);
        Some(OrphanSlot::File { block, slot })
    }
}

// Keeps the superblock in memory for the committer.

/// The largest size of a file in bytes that does not need the feature `large_file`.
const SMALL_FILE: u64 = (1 << 31) - 1;

/// The byte range of the superblock on the device.
pub(crate) const SUPERBLOCK: std::ops::Range<usize> = 1024..2048;

/// Holds the superblock. While the file system is in use, only the committer changes it.
pub(crate) struct SuperState {
    inner: Mutex<Inner>,
    /// Any thread may record an error, whatever locks it holds. [rank LaneList]
    errors: Mutex<Errors>,
}

/// The errors that this mount has met.
#[derive(Default)]
struct Errors {
    /// The last error, if no captured superblock contains it yet.
    pending: Option<ErrorRecord>,
    are_any: bool,
}

/// The features that inodes use although they may be missing: `ext_attr` and `large_file`. Like the
/// kernel, a commit adds them with the first inode that uses them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsedFeatures {
    compat: Compat,
    ro_compat: RoCompat,
}

impl UsedFeatures {
    pub(crate) const NONE: UsedFeatures =
        UsedFeatures { compat: Compat::empty(), ro_compat: RoCompat::empty() };

    /// Adds the features that an inode uses.
    pub(crate) fn add(&mut self, record: &Record, geometry: &Geometry) {
        let area = record.disk.xattr_area(geometry).map(|area| record.raw.area(area));
        // An attribute area that is in use starts with a magic number.
        let is_in_use = |area: &[u8]| area.first_chunk().is_some_and(|magic| *magic != [0; 4]);
        if record.disk.file_acl.is_some() || area.is_some_and(|area| is_in_use(&area)) {
            self.compat |= Compat::EXT_ATTR;
        }
        if record.disk.file_type() == Some(FileType::Regular) && record.disk.size > SMALL_FILE {
            self.ro_compat |= RoCompat::LARGE_FILE;
        }
    }
}

struct Inner {
    superblock: Superblock,
    /// The block that contains the superblock, with the bytes around it.
    image: Vec<u8>,
}

impl SuperState {
    /// Creates the state; `image` is the block that contains the superblock.
    pub(crate) fn new(superblock: Superblock, image: Vec<u8>) -> SuperState {
        let inner = Inner { superblock, image };
        let errors = Mutex::new(Rank::LaneList, Errors::default());
        SuperState { inner: Mutex::new(Rank::Load, inner), errors }
    }

    /// Committer: returns the block with the superblock. Sets the counts of free blocks and of free
    /// inodes in it, and adds the features that inodes use. If `orphan_head` or `blocks` is given,
    /// sets the head of the orphan list or the number of blocks too.
    pub(crate) fn capture(
        &self,
        free: (u64, u64),
        orphan_head: Option<Ino>,
        blocks: Option<u64>,
        used: UsedFeatures,
    ) -> Result<Arc<[u8]>, Error> {
        let mut inner = self.inner.lock();
        inner.superblock.add_features(used.compat, used.ro_compat);
        if let Some(blocks) = blocks {
            inner.superblock = resized(&inner.superblock, blocks)?;
        }
        inner.superblock.set_free_blocks(free.0);
        inner.superblock.set_free_inodes(u32::try_from(free.1).unwrap_or(u32::MAX));
        if let Some(head) = orphan_head {
            inner.superblock.set_last_orphan((head.0 != 0).then_some(head));
        }
        if let Some(error) = self.errors.lock().pending.take() {
            inner.superblock.record_error(&error);
        }
        Ok(inner.encode().into())
    }

    /// Returns whether the superblock lacks a feature that inodes use.
    pub(crate) fn lacks(&self, used: UsedFeatures) -> bool {
        let features = self.inner.lock().superblock.features();
        !features.compat.contains(used.compat) || !features.ro_compat.contains(used.ro_compat)
    }

    /// Changes the superblock outside of the journal, at mount and close. Returns the block to
    /// write.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Superblock)) -> Vec<u8> {
        let mut inner = self.inner.lock();
        change(&mut inner.superblock);
        if let Some(error) = self.errors.lock().pending.take() {
            inner.superblock.record_error(&error);
        }
        inner.encode()
    }

    /// Returns a copy of the superblock as it is in memory.
    pub(crate) fn snapshot(&self) -> Superblock {
        self.inner.lock().superblock.clone()
    }

    /// Notes an error, to be written with the next image.
    pub(crate) fn note_error(&self, error: ErrorRecord) {
        *self.errors.lock() = Errors { pending: Some(error), are_any: true };
    }

    /// Returns whether this mount has met errors.
    pub(crate) fn has_met_errors(&self) -> bool {
        self.errors.lock().are_any
    }
}

/// Returns the superblock of the file system with `blocks` blocks: see [`resize::resized`].
///
/// # Errors
/// [`Error::CannotGrow`], [`Error::Corruption`].
pub(crate) fn resized(superblock: &Superblock, blocks: u64) -> Result<Superblock, Error> {
    resize::resized(superblock, blocks).map_err(|error| match error {
        SizeError::Refused(reason) => CannotGrow::Size(reason).into(),
        SizeError::Corruption(cause) => cause.into(),
    })
}

/// Records the abort of the journal in the superblock on the device. Patches the superblock that is
/// read from the device, because the superblock in memory may belong to a transaction that is lost.
pub(crate) fn record_abort(volume: &Volume, cause: &lanefs_journal::Error) -> Result<(), Error> {
    let code = match cause {
        lanefs_journal::Error::Device(_) => ErrorCode::Io,
        lanefs_journal::Error::Corruption(_) => ErrorCode::Damage,
        _ => ErrorCode::Unknown,
    };
    let time = now().secs.try_into().unwrap_or(0);
    let function = "lanefs: journal aborted".into();
    let mut bytes = [0; SUPERBLOCK.end - SUPERBLOCK.start];
    volume.device.read_at(SUPERBLOCK.start as u64, &mut bytes)?;
    let mut superblock = Superblock::decode(&bytes)?;
    superblock.record_error(&ErrorRecord { time, ino: 0, block: 0, function, line: 0, code });
    Ok(volume.device.write_durable_at(SUPERBLOCK.start as u64, &superblock.encode())?)
}

impl Inner {
    fn encode(&mut self) -> Vec<u8> {
        let bytes = self.superblock.encode();
        let at = SUPERBLOCK.start % self.image.len();
        self.image[at..at + bytes.len()].copy_from_slice(&bytes);
        self.image.clone()
    }
}
