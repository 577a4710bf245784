//! Holds the state under an inode's guard: the record, and state that a reloaded inode would lack.

use crate::object::dirty::{OrphanSlot, RawRecord, Record};
use crate::object::mount_ref::{Permit, Totals};
use lanefs_journal::{Listed, Tid, Tracked};
use lanefs_lanes::sync::OnceLock;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::{Lane, LaneArc, Lines, Mutex, PerLane, Rank};
use lanefs_ondisk::inode::BlockField;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, FileType, Ino, Time, inode as disk};
use lanefs_plan::mapping::Form;
use std::ops::Range;

/// Selects the parts of an inode that a change concerns. They determine whether fdatasync(2) waits
/// for the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concerns {
    /// Parts needed to read the data back: mapping, size.
    Data,
    /// All other parts.
    Attributes,
}

/// Holds extended attributes as an inode stores them.
pub(crate) struct StoredXattrs {
    /// The area for attributes in the inode's record.
    pub(crate) in_inode: Lines,
    /// The attribute block.
    pub(crate) block: Option<Block>,
}

impl lanefs_lanes::Replaced for StoredXattrs {
    fn heap_bytes(&self) -> usize {
        self.in_inode.len()
    }
}

/// The state under an inode's guard.
pub(crate) struct InodeState {
    pub(crate) disk: disk::Inode,
    pub(crate) raw: RawRecord,
    /// The transaction in which the inode is dirty, and the record that was saved for the
    /// transaction before, if any. The record is boxed because few inodes ever have one.
    pub(crate) tracked: Tracked<Box<Record>>,
    /// The inode's position on the list of the transaction in which the inode is dirty.
    pub(crate) listed: Option<Listed>,
    /// The inode's position in the orphan file or list.
    pub(crate) orphan: Option<OrphanSlot>,
    /// Is set if the inode was created without a name (O_TMPFILE): link(2) may give it its first
    /// name. An inode that has lost its last name cannot get another.
    pub(crate) linkable: bool,
    /// The transaction after whose commit the tail of the last block is zeroed. An operation that
    /// grows the file waits for this commit.
    pub(crate) tail_pending: Option<Tid>,
    /// With `bigalloc`: the last transaction that unmapped blocks of a cluster that stays in use.
    pub(crate) unmapped_in: Option<Tid>,
    /// For a directory: the time of the last name change, if that change set the directory's times.
    names_changed: Option<Time>,
    /// For a directory: the number of subdirectories whose removal was counted before their
    /// creation, in the transaction in which the directory is dirty. This happens if one lane
    /// counts the removal before another lane counts the creation. Later additions are reduced by
    /// this number.
    pub(crate) owed: i32,
    /// The changes for fast commits, if the mount writes them.
    pub(crate) fast: Option<Box<FastTrack>>,
    /// Whether the inode's bit in the bitmap was cleared. If so, the record of a newer inode with
    /// the same number replaces this record.
    pub(crate) freed: bool,
}

impl InodeState {
    #[inline]
    pub(crate) fn new(disk: disk::Inode, raw: RawRecord) -> InodeState {
        InodeState {
            disk,
            raw,
            tracked: Tracked::new(),
            listed: None,
            orphan: None,
            linkable: false,
            tail_pending: None,
            unmapped_in: None,
            names_changed: None,
            owed: 0,
            fast: None,
            freed: false,
        }
    }

    /// Returns whether the inode has mappings, or nodes for mappings.
    pub(crate) fn has_mappings(&self, geometry: &Geometry) -> bool {
        let empty = match self.disk.block_field(geometry) {
            BlockField::ExtentTree => Form::Extents.empty_root(),
            BlockField::BlockMap => Form::BlockMap.empty_root(),
            BlockField::InlineData | BlockField::NoMapping => return false,
        };
        self.disk.block != empty
    }

    /// Returns whether nothing but the inode's number has to be freed: the inode has no blocks, no
    /// attribute block and no orphan record.
    pub(crate) fn owns_nothing(&self, geometry: &Geometry) -> bool {
        let is_directory = matches!(self.disk.file_type(), Some(FileType::Directory) | None);
        !is_directory
            && !self.has_mappings(geometry)
            // `sectors` also counts attribute values that are in inodes of their own.
            && self.disk.sectors == 0
            && self.disk.file_acl.is_none()
            && self.orphan.is_none()
    }

    /// Changes the record into that of a free inode.
    pub(crate) fn end(&mut self, now: Time) {
        self.disk.file_acl = None;
        self.disk.links = 0;
        self.disk.size = 0;
        self.disk.dtime = u32::try_from(now.secs).unwrap_or(u32::MAX);
        self.freed = true;
    }

    /// Counts `changes` name changes in this directory, the last of which happened at time `at`.
    pub(crate) fn names_changed(&mut self, changes: u32, at: Time) {
        let last = self.names_changed;
        // Lanes read the clock before they take the guard, so the times of their changes may arrive
        // out of order, and the latest is kept. If the time was set in another way, for example by
        // utimensat(2), the next name change replaces it, even if the change is earlier.
        let later = |kept: Time| if last == Some(kept) { kept.max(at) } else { at };
        let disk = &mut self.disk;
        disk.version = disk.version.wrapping_add(u64::from(changes));
        (disk.mtime, disk.ctime) = (later(disk.mtime), later(disk.ctime));
        self.names_changed = Some(disk.mtime);
    }

    /// Adds `more - owed`, which may be negative, to the number of subdirectories in the link
    /// count. If the count is too small for all removals, the remaining removals are kept in
    /// `owed`.
    pub(crate) fn count_subdirectories(&mut self, more: i32) {
        let more = more - std::mem::take(&mut self.owed);
        // A directory with link count 1 no longer counts its subdirectories: its link count stays
        // 1.
        let most = match self.disk.links {
            0 | 1 => i32::MAX,
            links => i32::from(links) - 2,
        };
        let less = (-more).min(most);
        self.owed = (-more - less).max(0);
        self.disk.add_directory_links(-less);
    }
}

// Keeps the changes of contended directories per lane, in deltas.
//
// Every change of a name also changes the directory's times and version, and may change its link
// count. If several lanes change names in one directory, each lane keeps these changes in a delta
// on its own cache lines. The deltas are folded into the inode, under its guard, before any other
// change of the inode, before its attributes are read and before its capture.
//
// *Invariant*: all deltas belong to the transaction in which the inode is dirty. A lane adds to
// its delta only after the inode was put on the dirty list of the lane's transaction. Putting the
// inode there folds the deltas of the previous transaction into that transaction's image. So a
// delta needs no transaction number, and a transaction's image contains no change of the next
// transaction.
//
// *Locking*: the lock of a lane's delta has [`Rank::LaneList`]. Folding takes this lock under the
// inode's guard.

/// A directory counts as contended after this many changes of names by a lane other than the lane
/// of the previous change. If a few threads use a directory one after another, the count stays
/// below this number.
const CONTENDED: u32 = if cfg!(shuttle) { 1 } else { 16 };

/// The largest change of the subdirectory count that one delta can hold. So a check of the link
/// limit may overlook up to this number of subdirectories per lane.
const MOST_LINKS: i32 = 64;

/// Tracks whether several lanes change names in a directory, and holds their deltas.
#[derive(Default)]
pub(crate) struct LaneDeltas {
    /// Low half: the number of the lane that last changed a name, plus one. High half: the number
    /// of changes that came from a different lane than the previous change. Updates may be lost,
    /// which only costs speed.
    seen: AtomicU32,
    deltas: OnceLock<Deltas>,
    /// The last transaction in which the inode was listed. In this transaction lanes may add to
    /// their deltas.
    listed_in: AtomicU64,
}

struct Deltas {
    lanes: PerLane<Slot>,
    /// The number of subdirectories when the directory became contended.
    subdirectories: u32,
    _permit: Permit,
}

struct Slot {
    /// Whether `delta` holds a change. A thread may read this flag without the lock if the read is
    /// ordered after all changes that the thread must see.
    any: AtomicBool,
    delta: Mutex<Delta>,
    /// The number of subdirectories that the lane added since the directory became contended, as an
    /// `i32`. It is negative if the lane removed more than it added.
    subdirectories: AtomicU32,
}

/// Sums up changes of a directory's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Delta {
    /// The number of names that changed.
    pub(crate) changes: u32,
    /// The time of the last change.
    pub(crate) at: Time,
    /// The number of subdirectories added, negative if more were removed.
    pub(crate) links: i32,
}

impl Delta {
    /// Returns the sum of both deltas.
    fn and(self, other: Delta) -> Delta {
        Delta {
            changes: self.changes.wrapping_add(other.changes),
            at: self.at.max(other.at),
            links: self.links + other.links,
        }
    }
}

impl LaneDeltas {
    /// Returns whether several lanes change names in this directory.
    pub(crate) fn is_contended(&self) -> bool {
        self.deltas.get().is_some()
    }

    /// Notes that the calling lane changed a name. The directory has `subdirectories`
    /// subdirectories.
    pub(crate) fn meet(&self, totals: &LaneArc<Totals>, subdirectories: u32) {
        let (seen, mine) = (self.seen.load(Ordering::Relaxed), Lane::current().index() as u32 + 1);
        let (last, times) = (seen & 0xffff, seen >> 16);
        if last == mine {
            return;
        }
        let times = (times + u32::from(last != 0)).min(CONTENDED);
        self.seen.store(times << 16 | mine, Ordering::Relaxed);
        if times >= CONTENDED
            && self.deltas.get().is_none()
            && let Some(permit) = Totals::permit(totals)
        {
            self.deltas.get_or_init(|| Deltas::new(permit, subdirectories));
        }
    }

    /// Notes that the inode is on the dirty list of `tid`, and that the deltas of the previous
    /// transaction are folded.
    pub(crate) fn listed(&self, tid: Tid) {
        if self.is_contended() {
            // Release, because a lane that reads this value must also see the fold before it adds
            // to its delta.
            self.listed_in.store(tid.0, Ordering::Release);
        }
    }

    /// Returns whether the inode is on the dirty list of `tid`; only then may lanes add to their
    /// deltas.
    pub(crate) fn are_listed(&self, tid: Tid) -> bool {
        self.listed_in.load(Ordering::Acquire) == tid.0
    }

    /// Adds a change in `tid` to the lane's delta. Returns false if the caller must change the
    /// inode itself.
    pub(crate) fn add(&self, tid: Tid, at: Time, links: i32) -> bool {
        let Some(deltas) = self.deltas.get() else { return false };
        if !self.are_listed(tid) {
            return false;
        }
        let slot = deltas.lanes.mine();
        let mut delta = slot.delta.lock();
        let new = delta.and(Delta { changes: 1, at, links });
        if new.links.abs() > MOST_LINKS {
            return false;
        }
        *delta = new;
        if !slot.any.load(Ordering::Relaxed) {
            slot.any.store(true, Ordering::Relaxed);
        }
        true
    }

    /// Counts `more` subdirectories that the calling lane added.
    pub(crate) fn count_subdirectories(&self, more: i32) {
        if let Some(deltas) = self.deltas.get().filter(|_| more != 0) {
            deltas.lanes.mine().subdirectories.fetch_add(more as u32, Ordering::Relaxed);
        }
    }

    /// Returns a number from which the block group of a new subdirectory is computed. If the
    /// directory is not contended, this number is `subdirectories`, the subdirectory count in the
    /// inode. In a contended directory the inode's count is out of date, so each lane takes numbers
    /// that no other lane takes, and need not read the counts of other lanes.
    pub(crate) fn next_number(&self, subdirectories: u32) -> u32 {
        let Some(deltas) = self.deltas.get() else { return subdirectories };
        let added = deltas.lanes.mine().subdirectories.load(Ordering::Relaxed) as i32;
        let first = deltas.subdirectories.wrapping_add(Lane::current().index() as u32);
        first.wrapping_add((added.max(0) as u32).wrapping_mul(Lane::given().len() as u32))
    }

    /// Returns whether any lane has a delta that the caller must see.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        let has = |deltas: &Deltas| deltas.lanes.iter().any(|s| s.any.load(Ordering::Relaxed));
        self.deltas.get().is_some_and(has)
    }

    /// Takes all deltas and returns their sum, or `None` if there are none. The caller holds the
    /// inode's guard and folds the sum into the inode.
    #[inline]
    pub(crate) fn take(&self) -> Option<Delta> {
        self.deltas.get()?.take()
    }
}

impl Deltas {
    fn take(&self) -> Option<Delta> {
        let mut all: Option<Delta> = None;
        for slot in self.lanes.iter().filter(|slot| slot.any.load(Ordering::Relaxed)) {
            let mut delta = slot.delta.lock();
            slot.any.store(false, Ordering::Relaxed);
            let taken = std::mem::take(&mut *delta);
            all = Some(all.map_or(taken, |all| all.and(taken)));
        }
        all
    }

    fn new(permit: Permit, subdirectories: u32) -> Deltas {
        let slot = |_| Slot {
            any: AtomicBool::new(false),
            delta: Mutex::new(Rank::LaneList, Delta::default()),
            subdirectories: AtomicU32::new(0),
        };
        Deltas { lanes: PerLane::new(slot), subdirectories, _permit: permit }
    }
}

// The changes of one inode in the running transaction, for fast commits.

/// The part of a fast commit that expresses a change of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FastPart {
    /// No part expresses the change.
    None,
    /// The inode's record. A directory needs no record, since the replay of a name changes the
    /// directory.
    Record,
    /// The record, and mappings that were added for these file blocks. No mapping was removed.
    Mappings(Range<u32>),
    /// The record of a new inode, and its first name ([`Inode::note_first_name`]).
    Birth,
}

/// The changes of a regular file in one transaction.
#[derive(Debug, Clone)]
pub(crate) struct FastTrack {
    pub(crate) tid: Tid,
    /// The number of changes, and how many of them are in fast commits.
    pub(crate) changes: u64,
    pub(crate) written: u64,
    /// A range that includes all file blocks that were mapped since the last fast commit.
    pub(crate) mapped: Range<u32>,
    pub(crate) birth: Birth,
    /// Why the last attempted fast commit could not contain the changes.
    pub(crate) refused: Option<Reason>,
}

/// Whether a fast commit must give the inode a name.
#[derive(Debug, Clone)]
pub(crate) enum Birth {
    /// No: the inode has had a name since an earlier transaction, or a fast commit has given it
    /// one.
    Known,
    /// Undecided: the transaction created the inode, which has no name so far.
    Unnamed,
    /// Yes: the transaction created the inode with this name.
    Named { parent: Ino, name: Box<[u8]> },
}

impl FastTrack {
    pub(crate) fn new(tid: Tid) -> FastTrack {
        FastTrack { tid, changes: 0, written: 0, mapped: 0..0, birth: Birth::Known, refused: None }
    }

    /// Notes a change in `tid`.
    pub(crate) fn note(&mut self, tid: Tid, part: &FastPart) {
        if self.tid != tid {
            *self = FastTrack::new(tid);
        }
        self.changes += 1;
        match part {
            FastPart::None | FastPart::Record => {}
            FastPart::Birth => self.birth = Birth::Unnamed,
            FastPart::Mappings(range) if self.mapped.is_empty() => self.mapped = range.clone(),
            FastPart::Mappings(range) => {
                let Range { start, end } = &mut self.mapped;
                (*start, *end) = ((*start).min(range.start), (*end).max(range.end));
            }
        }
    }
}

/// The reason why an fsync committed the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The transaction was being committed already.
    Committing,
    /// The inode is not a regular file.
    Kind,
    /// The inode shares a block of its table with the journal's inode.
    Table,
    /// The inode has a change that no fast commit expresses.
    Change,
    /// The directory of the inode's name has a change that no fast commit expresses, or a replay
    /// may be unable to add a name to it.
    Directory,
    /// The inode has new mappings, and its extent tree has nodes outside of the inode.
    Nodes,
    /// A directory was renamed, or groups were added.
    Tree,
    /// The log takes no fast commits at present: it is empty, or has no area for fast commits.
    Log,
    /// The log's area for fast commits is full.
    Room,
}

impl Reason {
    pub(crate) const ALL: [Reason; 9] = [
        Reason::Committing,
        Reason::Kind,
        Reason::Table,
        Reason::Change,
        Reason::Directory,
        Reason::Nodes,
        Reason::Tree,
        Reason::Log,
        Reason::Room,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Committing => "fast_commit.not.committing",
            Reason::Kind => "fast_commit.not.kind",
            Reason::Table => "fast_commit.not.table",
            Reason::Change => "fast_commit.not.change",
            Reason::Directory => "fast_commit.not.directory",
            Reason::Nodes => "fast_commit.not.nodes",
            Reason::Tree => "fast_commit.not.tree",
            Reason::Log => "fast_commit.not.log",
            Reason::Room => "fast_commit.not.room",
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
