//! Keeps the changes of contended directories per lane, in deltas.
//!
//! Every change of a name also changes the directory's times and version, and may change its link
//! count. If several lanes change names in one directory, each lane keeps these changes in a delta
//! on its own cache lines. The deltas are folded into the inode, under its guard, before any other
//! change of the inode, before its attributes are read and before its capture.
//!
//! *Invariant*: all deltas belong to the transaction in which the inode is dirty. A lane adds to
//! its delta only after the inode was put on the dirty list of the lane's transaction. Putting the
//! inode there folds the deltas of the previous transaction into that transaction's image. So a
//! delta needs no transaction number, and a transaction's image contains no change of the next
//! transaction.
//!
//! *Locking*: the lock of a lane's delta has [`Rank::LaneList`]. Folding takes this lock under the
//! inode's guard.

use crate::object::totals::{Permit, Totals};
use lanefs_journal::Tid;
use lanefs_lanes::sync::OnceLock;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::{Lane, LaneArc, Mutex, PerLane, Rank};
use lanefs_ondisk::Time;

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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use lanefs_lanes::MAX_LANES;

    fn time(secs: i64) -> Time {
        Time { secs, nanos: 0 }
    }

    fn totals() -> LaneArc<Totals> {
        Totals::new()
    }

    fn contended() -> (LaneDeltas, LaneArc<Totals>) {
        let (deltas, totals) = (LaneDeltas::default(), totals());
        for other in 0..=CONTENDED {
            deltas.seen.store(other << 16 | 0xffff, Ordering::Relaxed);
            deltas.meet(&totals, 100);
        }
        assert!(deltas.is_contended());
        (deltas, totals)
    }

    #[test]
    fn one_lane_alone_does_not_contend() {
        let (deltas, totals) = (LaneDeltas::default(), totals());
        (0..1000).for_each(|_| deltas.meet(&totals, 100));
        assert!(!deltas.is_contended());
        assert!(!deltas.add(Tid(1), time(1), 0));
    }

    #[test]
    fn deltas_are_taken_once() {
        let (deltas, _totals) = contended();
        deltas.listed(Tid(5));
        assert!(deltas.add(Tid(5), time(10), 1));
        assert!(deltas.add(Tid(5), time(9), 1));
        assert!(deltas.are_any());
        assert_eq!(deltas.take(), Some(Delta { changes: 2, at: time(10), links: 2 }));
        assert_eq!(deltas.take(), None);
        assert!(!deltas.are_any());
    }

    #[test]
    fn each_lane_of_a_contended_directory_takes_numbers_of_its_own() {
        assert_eq!(LaneDeltas::default().next_number(7), 7);
        let (deltas, _totals) = contended();
        // With this many threads at a time all lanes are in use, so the number of lanes no longer
        // changes.
        let barrier = lanefs_lanes::sync::unscheduled::Barrier::new(MAX_LANES);
        let take = || {
            Lane::current();
            barrier.wait();
            let take = |_| {
                let number = deltas.next_number(7);
                deltas.count_subdirectories(1);
                (number, Lane::current())
            };
            let numbers: Vec<(u32, Lane)> = (0..10).map(take).collect();
            barrier.wait();
            numbers
        };
        let taken: Vec<(u32, Lane)> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..MAX_LANES).map(|_| s.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        let mut lanes = std::collections::BTreeMap::new();
        for (number, lane) in taken {
            assert!(number >= 100, "{number} comes after the existing ones");
            assert_eq!(*lanes.entry(number).or_insert(lane), lane, "of {number}");
        }
        let before = deltas.next_number(7);
        deltas.count_subdirectories(1);
        deltas.count_subdirectories(-1);
        assert_eq!(deltas.next_number(7), before, "one was added and removed");
    }

    #[test]
    fn no_delta_is_kept_before_the_inode_is_listed_in_its_transaction() {
        let (deltas, _totals) = contended();
        assert!(!deltas.add(Tid(5), time(10), 0));
        deltas.listed(Tid(5));
        assert!(deltas.add(Tid(5), time(10), 0));
        assert!(!deltas.add(Tid(6), time(11), 0));
    }

    #[test]
    fn a_delta_of_links_is_bounded() {
        let (deltas, _totals) = contended();
        deltas.listed(Tid(5));
        let kept = (0..1000).filter(|_| deltas.add(Tid(5), time(1), 1)).count();
        assert_eq!(kept, MOST_LINKS as usize);
        assert_eq!(deltas.take().map(|delta| delta.links), Some(MOST_LINKS));
    }

    #[test]
    fn the_number_of_directories_with_deltas_is_limited() {
        let totals = totals();
        let permits: Vec<Permit> = std::iter::from_fn(|| Totals::permit(&totals)).collect();
        assert!(Totals::permit(&totals).is_none());
        drop(permits);
        assert!(Totals::permit(&totals).is_some());
    }
}
