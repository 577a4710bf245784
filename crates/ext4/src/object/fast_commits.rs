//! What a mount records for fast commits, and what each inode records for them.

use crate::object::inode::Inode;
use crate::object::state::{Birth, FastPart, FastTrack, InodeState, Reason};
use lanefs_journal::Tid;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{LaneCounter, Mutex, Padded, Rank};
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::superblock::{InodePlace, JournalPlace, Superblock};
use lanefs_ondisk::{FileType, Ino};

/// The fast commits of a mount that writes them.
pub(crate) struct FastCommits {
    /// The position of the journal's inode in its inode table.
    journal: InodePlace,
    /// The inodes for which threads wait for a fast commit. [rank Bucket]
    pub(super) waiting: Mutex<Vec<Arc<Inode>>>,
    /// The last transaction in which a directory was renamed or groups were added.
    unfit_in: Padded<AtomicU64>,
    /// The last transaction whose fast commits filled the log's area for fast commits.
    pub(super) full_in: AtomicU64,
    /// The number of fsyncs that committed a transaction instead of writing a fast commit, for each
    /// reason in [`Reason::ALL`].
    refused: [LaneCounter; Reason::ALL.len()],
}

impl FastCommits {
    /// Returns `None` if no fast commits can be written. This is so if the log is on another
    /// device, if the file system lacks a feature that fast commits need, or if it has a feature
    /// that makes a replay refuse fast commits.
    pub(crate) fn new(superblock: &Superblock) -> Option<FastCommits> {
        let Some(JournalPlace::Inode(ino)) = superblock.journal() else { return None };
        Some(FastCommits {
            journal: superblock.geometry().inode_place(ino).filter(|_| fit(superblock))?,
            waiting: Mutex::new(Rank::Bucket, Vec::new()),
            unfit_in: Padded(AtomicU64::new(0)),
            full_in: AtomicU64::new(0),
            refused: Reason::ALL.map(|_| LaneCounter::new(0)),
        })
    }

    /// Returns whether an inode at `place` is in the same inode-table block as the journal's inode.
    ///
    /// e2fsck 1.47.0 reads the table block that contains the journal's inode, and only then replays
    /// the log. e2fsck keeps a copy of this block until a fast commit has an inode record for
    /// another table block. If the first record is for the same block, e2fsck puts the record into
    /// the old copy, and writes the copy to the device. So the block loses all changes that the
    /// replayed transactions made to it.
    pub(super) fn is_beside_journal(&self, place: &InodePlace) -> bool {
        (place.group, place.table_block) == (self.journal.group, self.journal.table_block)
    }

    /// Notes a change in `tid` that concerns the whole tree (a renamed directory, added groups).
    /// Called before other threads can see the change.
    pub(crate) fn tree_changes(&self, tid: Tid) {
        note_unfit(&self.unfit_in, tid);
    }

    /// Returns whether `tid` contains a change that concerns the whole tree.
    pub(super) fn is_unfit(&self, tid: Tid) -> bool {
        self.unfit_in.load(Ordering::Acquire) == tid.0
    }

    pub(super) fn is_full(&self, tid: Tid) -> bool {
        self.full_in.load(Ordering::Acquire) == tid.0
    }

    pub(super) fn refuse(&self, reason: Reason) {
        self.refused[reason as usize].add(1);
    }

    /// Returns how many fsyncs committed the transaction instead of writing a fast commit, by
    /// reason.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refused.iter().map(|count| count.sum() as u64);
        Reason::ALL.into_iter().map(Reason::name).zip(counts)
    }
}

fn fit(superblock: &Superblock) -> bool {
    let features = superblock.features();
    let others = RoCompat::BIGALLOC | RoCompat::QUOTA | RoCompat::SHARED_BLOCKS;
    let incompatible =
        Incompat::ENCRYPT | Incompat::CASEFOLD | Incompat::INLINE_DATA | Incompat::EA_INODE;
    // A fast commit cannot add `large_file` to the superblock.
    features.compat.contains(Compat::FAST_COMMIT)
        && features.ro_compat.contains(RoCompat::LARGE_FILE)
        && features.incompat.contains(Incompat::EXTENTS)
        && !features.ro_compat.intersects(others)
        && !features.incompat.intersects(incompatible)
}

/// Stores `tid` in `word`. Writes nothing if `word` already contains the number, since many lanes
/// may store the same number.
fn note_unfit(word: &AtomicU64, tid: Tid) {
    if word.load(Ordering::Relaxed) != tid.0 {
        word.store(tid.0, Ordering::Release);
    }
}

impl Inode {
    /// Notes a change in `tid` that no fast commit expresses. Called before other threads can see
    /// the change.
    pub(crate) fn note_unfit(&self, tid: Tid) {
        note_unfit(&self.unfit_in, tid);
    }

    /// Notes a change in `tid`. The guard is held.
    pub(super) fn note_for_fast_commits(&self, state: &mut InodeState, tid: Tid, part: &FastPart) {
        if *part == FastPart::None {
            self.note_unfit(tid);
        }
        if self.file_type == FileType::Regular {
            state.fast.get_or_insert_with(|| Box::new(FastTrack::new(tid))).note(tid, part);
        }
    }

    /// Notes the name that a new inode gets. Called before other threads can see the name.
    pub(crate) fn note_first_name(&self, parent: Ino, name: &[u8]) {
        if let Some(fast) = &mut self.state.lock().fast {
            fast.birth = Birth::Named { parent, name: name.into() };
        }
    }

    /// Returns the number of changes in `tid`, and how many of them are in fast commits; `None` if
    /// no change was noted.
    pub(super) fn fast_changes(&self, tid: Tid) -> Option<(u64, u64)> {
        let state = self.state.lock();
        let fast = state.fast.as_ref().filter(|fast| fast.tid == tid)?;
        Some((fast.changes, fast.written))
    }

    pub(super) fn is_unfit(&self, tid: Tid) -> bool {
        self.unfit_in.load(Ordering::Acquire) == tid.0
    }

    /// Records why no fast commit can contain the changes of this inode in `tid`. From then on, an
    /// fsync of the inode commits `tid`.
    pub(super) fn refuse_fast_commits(&self, tid: Tid, reason: Reason) {
        if let Some(fast) = &mut self.state.lock().fast {
            fast.refused = Some(reason);
        }
        self.note_unfit(tid);
    }

    /// Returns why an inode is unfit for fast commits.
    pub(super) fn refusal(&self, tid: Tid) -> Reason {
        let state = self.state.lock();
        let fast = state.fast.as_ref().filter(|fast| fast.tid == tid);
        fast.and_then(|fast| fast.refused).unwrap_or(Reason::Change)
    }
}
