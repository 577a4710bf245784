//! Writes fast commits, and decides which changes of the running transaction T they contain.
//!
//! A fast commit has the record of an inode and its new mappings, and also the inode's name if T
//! created the inode. A fast commit is replayed after T-1 and without the rest of T, which may be
//! lost. So the inode must not depend on the rest of T. This is ensured if all of the following
//! hold:
//!
//! - the inode is a regular file, and each of its changes in T was its creation, a change of its
//!   record, or an added mapping. Any other change makes the inode unfit for fast commits until T
//!   is closed. The code marks a change of this kind with
//!   [`FastPart::None`](crate::object::fast_track::FastPart::None);
//! - the number of a new inode was already free after T-1. If T freed the number, the inode is
//!   unfit;
//! - the directory of a new name exists after T-1, has room for the name, and has no other entry of
//!   that name. A directory that T created or gave another shape, or from which T removed a name,
//!   is unfit ([`Inode::unfit_in`]);
//! - no directory was renamed in T, and no groups were added ([`FastCommits::is_unfit`]);
//! - the inode is not in the inode-table block of the journal's inode
//!   ([`FastCommits::is_beside_journal`]);
//! - the inode's blocks are not claimed again before T is durable, even if T frees them
//!   (`Groups::free_blocks`).
//!
//! An fsync of any other inode commits T. So does every fsync on a file system with a feature that
//! fast commits cannot express or that makes a replay refuse fast commits (`fit` in
//! `fast_commits.rs`).

use crate::object::fast_commits::FastCommits;
use crate::object::fast_track::{Birth, Reason};
use crate::object::inode::Inode;
use crate::object::objects::Objects;
use crate::object::record::Record;
use crate::object::state::InodeState;
use lanefs_journal::{FastBatch, FastClient, FastEnd, FlushMark, Tid};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::extent::has_nodes;
use lanefs_ondisk::inode::{BlockField, InodeFlags};
use lanefs_ondisk::jbd2::{FastChange, FastName};
use lanefs_ondisk::{FileType, Ino};
use lanefs_plan::extent::{State, overlapping};

/// The size of a record without its extra fields, in bytes.
const GOOD_OLD_SIZE: usize = 128;

impl Objects {
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
        let mut round = Round { objects: self, fast, inode, tid, asked, taken: Vec::new() };
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
    objects: &'r Objects,
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
                false => self.objects.take_fast_changes(&inode, tid, &mut batch.changes),
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
