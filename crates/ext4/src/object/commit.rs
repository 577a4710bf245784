//! Implements the journal's client: writes images of dirty objects and does the work after a
//! commit.

use crate::alloc::GroupImage;
use crate::object::dirty::{
    Captured, CapturedRecord, Deferred, Dirty, Growth, Record, chain_record,
};
use crate::object::fast_commits::FastCommits;
use crate::object::fs::Fs;
use crate::object::inode::Inode;
use crate::object::orphan::{Chain, UsedFeatures, record_abort};
use crate::object::state::{Birth, InodeState, Reason};
use crate::quota::Fold;
use crate::volume::BlockReader;
use lanefs_journal::{Client, FastBatch, FastClient, FastEnd, FlushMark, Images, Tid};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::extent::has_nodes;
use lanefs_ondisk::inode::{BlockField, InodeFlags};
use lanefs_ondisk::jbd2::{FastChange, FastName};
use lanefs_ondisk::{Block, FileType, Group, Ino, inode as disk};
use lanefs_plan::Error;
use lanefs_plan::Expected;
use lanefs_plan::extent::{State, overlapping};
use std::collections::BTreeMap;

impl Client<Dirty, Deferred> for Fs {
    fn capture(
        &self,
        tid: Tid,
        dirty: Vec<Dirty>,
        images: &mut Images,
    ) -> Result<(), lanefs_journal::Error> {
        self.capture_objects(tid, dirty, images).map_err(journal_error)
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
                if self.options.discard {
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

    fn served(&self) {
        self.reclaim();
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

impl Fs {
    fn capture_objects(
        &self,
        tid: Tid,
        dirty: Vec<Dirty>,
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
        let growth = dirty.iter().find_map(|object| match object {
            Dirty::Growth(growth) => Some(growth.clone()),
            _ => None,
        });
        if let Some(growth) = &growth {
            self.capture_growth(growth, &mut descriptors, &mut captured)?;
        }
        for object in dirty {
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
            let (index, bytes) = growth.new.desc_place(group).expected()?;
            let block = growth.new.desc_block(index).expected()?;
            let base = || growth.base(index, self);
            let record = descriptors.patch(block, base)?.get_mut(bytes).expected()?;
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
        let record = descriptors.patch(block, base)?.get_mut(bytes).expected()?;
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
                let before = self.volume.record_in(copy, offset).expected()?;
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
            let record = copy.get_mut(place.offset..end).expected()?;
            let mut inode = disk::Inode::decode(record, Ino::RESIZE, geometry, checksums)?;
            inode.sectors = resize.sectors;
            let encoded = inode.encode_into(record, Ino::RESIZE, geometry, checksums);
            encoded.map_err(|_| Error::internal())?;
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

// Writes fast commits, and decides which changes of the running transaction T they contain.
//
// A fast commit has the record of an inode and its new mappings, and also the inode's name if T
// created the inode. A fast commit is replayed after T-1 and without the rest of T, which may be
// lost. So the inode must not depend on the rest of T. This is ensured if all of the following
// hold:
//
// - the inode is a regular file, and each of its changes in T was its creation, a change of its
//   record, or an added mapping. Any other change makes the inode unfit for fast commits until T
//   is closed. The code marks a change of this kind with
//   `FastPart::None`;
// - the number of a new inode was already free after T-1. If T freed the number, the inode is
//   unfit;
// - the directory of a new name exists after T-1, has room for the name, and has no other entry of
//   that name. A directory that T created or gave another shape, or from which T removed a name,
//   is unfit ([`Inode::unfit_in`]);
// - no directory was renamed in T, and no groups were added ([`FastCommits::is_unfit`]);
// - the inode is not in the inode-table block of the journal's inode
//   ([`FastCommits::is_beside_journal`]);
// - the inode's blocks are not claimed again before T is durable, even if T frees them
//   (`Groups::free_blocks`).
//
// An fsync of any other inode commits T. So does every fsync on a file system with a feature that
// fast commits cannot express or that makes a replay refuse fast commits (`fit` in
// `fast_commits.rs`).

/// The size of a record without its extra fields, in bytes.
const GOOD_OLD_SIZE: usize = 128;

impl Fs {
    /// Makes all changes of `inode` in `tid` durable by a fast commit. Returns false if only a full
    /// commit can do that.
    ///
    /// # Errors
    /// The errors of the journal.
    ///
    /// # Locking
    /// As for [`lanefs_journal::Journal::fast_commit`], the caller holds no lock.
    pub(crate) fn fast_commit(
        &self,
        inode: &Arc<Inode>,
        tid: Tid,
    ) -> Result<bool, lanefs_journal::Error> {
        let Some(fast) = &self.fast else { return Ok(false) };
        let refused = |reason| {
            fast.refuse(reason);
            Ok(false)
        };
        if tid != self.journal.running() {
            return refused(Reason::Committing);
        }
        if inode.file_type != FileType::Regular {
            return refused(Reason::Kind);
        }
        let place = self.volume.geometry().inode_place(inode.ino);
        if place.is_none_or(|place| fast.is_beside_journal(&place)) {
            return refused(Reason::Table);
        }
        let Some((asked, written)) = inode.fast_changes(tid).filter(|_| !inode.is_unfit(tid))
        else {
            return refused(inode.refusal(tid));
        };
        if written == asked {
            return Ok(true);
        }
        if fast.is_unfit(tid) {
            return refused(Reason::Tree);
        }
        if fast.is_full(tid) {
            return refused(Reason::Room);
        }
        fast.waiting.lock().push(inode.clone());
        let mut round = Round { fs: self, fast, inode, tid, asked, taken: Vec::new() };
        match self.journal.fast_commit(tid, self, &mut round)? {
            FastEnd::Refused => {
                fast.waiting.lock().retain(|waiting| !Arc::ptr_eq(waiting, inode));
                refused(Reason::Log)
            }
            FastEnd::Done if fast.is_full(tid) => refused(Reason::Room),
            FastEnd::Done if inode.is_unfit(tid) => refused(inode.refusal(tid)),
            // Instead of a fast commit, a full commit may have made the changes durable meanwhile.
            FastEnd::Done => Ok(self.journal.durable() >= tid || round.is_written_up_to_now()),
        }
    }

    /// Takes the changes of `inode` in `tid` for a fast commit, and returns their number. If a fast
    /// commit cannot contain them, returns the reason.
    fn take_fast_changes(
        &self,
        inode: &Inode,
        tid: Tid,
        into: &mut Vec<FastChange>,
    ) -> Result<u64, Reason> {
        let pin = lanefs_lanes::pin();
        let mut state = inode.state.lock();
        let InodeState { disk, raw, fast, orphan, tail_pending, freed, .. } = &mut *state;
        let fast = fast.as_mut().filter(|fast| fast.tid == tid).ok_or(Reason::Change)?;
        let is_plain = disk.block_field(self.volume.geometry()) == BlockField::ExtentTree
            && disk.links > 0
            && !*freed
            && orphan.is_none()
            && tail_pending.is_none_or(|pending| pending <= self.journal.durable());
        if inode.is_unfit(tid) || !is_plain {
            return Err(Reason::Change);
        }
        let mut changes = Vec::new();
        if !fast.mapped.is_empty() {
            // If the tree has nodes outside of the inode, a replay by e2fsck (1.47.0) may put these
            // nodes into blocks that contain data of the file.
            if has_nodes(&disk.block) {
                return Err(Reason::Nodes);
            }
            let map = inode.map.get(&pin).ok_or(Reason::Nodes)?;
            changes.extend(overlapping(map, fast.mapped.clone()).into_iter().map(|extent| {
                FastChange::AddRange {
                    ino: inode.ino,
                    range: extent.start.0..extent.end(),
                    block: extent.block,
                    is_written: extent.state == State::Written,
                }
            }));
        }
        let record = Record::of(disk, raw, false).encoded(&self.volume, inode.ino);
        let record = record.map_err(|_| Reason::Change)?;
        let len = GOOD_OLD_SIZE + usize::from(disk.extra_isize);
        let record = FastChange::Inode {
            ino: inode.ino,
            record: record.get(..len).ok_or(Reason::Change)?.to_vec(),
        };
        match &fast.birth {
            Birth::Known => changes.push(record),
            Birth::Unnamed => return Err(Reason::Change),
            Birth::Named { parent, name } => {
                self.check_fast_parent(*parent, tid)?;
                let (parent, ino, name) = (*parent, inode.ino, name.to_vec());
                let name = FastChange::Create(FastName { parent, ino, name });
                // The record comes before the ranges, because a replay maps ranges only in an
                // existing inode. As in the kernel, the record is repeated after the ranges,
                // because the kernel's replay (6.18) counts the blocks of the file when it sets a
                // record.
                changes.insert(0, record.clone());
                changes.push(name);
                if changes.len() > 2 {
                    changes.push(record);
                }
            }
        }
        into.append(&mut changes);
        (fast.mapped, fast.birth) = (0..0, Birth::Known);
        Ok(fast.changes)
    }

    /// Fails if a replay could not add a name to this directory.
    fn check_fast_parent(&self, parent: Ino, tid: Tid) -> Result<(), Reason> {
        let dir = self.inodes.get(parent).ok_or(Reason::Directory)?;
        let flags = InodeFlags::from_bits_retain(dir.rights().flags);
        // A replay may add names in another order, and may then need one more block in a directory
        // of several blocks without an index. The kernel (6.18) cannot add a block in a replay.
        let is_simple =
            flags.contains(InodeFlags::INDEX) || dir.size() == self.volume.block_size() as u64;
        match flags.contains(InodeFlags::EXTENTS) && is_simple && !dir.is_unfit(tid) {
            true => Ok(()),
            false => Err(Reason::Directory),
        }
    }
}

/// A thread's part in a fast commit.
struct Round<'r> {
    fs: &'r Fs,
    fast: &'r FastCommits,
    inode: &'r Arc<Inode>,
    tid: Tid,
    /// The number of changes of `inode` that the caller wants to be durable.
    asked: u64,
    /// The inodes in the fast commit, each with its number of changes.
    taken: Vec<(Arc<Inode>, u64)>,
}

impl Round<'_> {
    fn is_written_up_to_now(&self) -> bool {
        self.inode.fast_changes(self.tid).is_some_and(|(_, written)| written >= self.asked)
    }
}

impl FastClient for Round<'_> {
    fn is_done(&self) -> bool {
        self.inode.is_unfit(self.tid) || self.is_written_up_to_now()
    }

    fn gather(&mut self, tid: Tid) -> FastBatch {
        let waiting = std::mem::take(&mut *self.fast.waiting.lock());
        let mut batch = FastBatch::default();
        let is_unfit = self.fast.is_unfit(tid);
        for inode in waiting {
            if inode.fast_changes(tid).is_none_or(|(all, written)| all == written) {
                continue;
            }
            let taken = match is_unfit {
                true => Err(Reason::Tree),
                false => self.fs.take_fast_changes(&inode, tid, &mut batch.changes),
            };
            match taken {
                Ok(count) => {
                    let mark = FlushMark(inode.flush_mark.load(Ordering::Acquire));
                    batch.mark = batch.mark.max(mark);
                    self.taken.push((inode, count));
                }
                Err(reason) => inode.refuse_fast_commits(tid, reason),
            }
        }
        batch
    }

    fn note_written(&mut self) {
        for (inode, count) in self.taken.drain(..) {
            let mut state = inode.state.lock();
            let fast = state.fast.as_mut().filter(|fast| fast.tid == self.tid);
            if let Some(fast) = fast {
                fast.written = count;
            }
        }
    }

    fn note_no_room(&mut self) {
        self.fast.full_in.store(self.tid.0, Ordering::Release);
        // `gather` took the changes, but they were not written. So only a full commit can make them
        // durable.
        for (inode, _) in self.taken.drain(..) {
            inode.note_unfit(self.tid);
        }
    }
}
