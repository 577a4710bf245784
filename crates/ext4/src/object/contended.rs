//! Contended directories: lane deltas, the changes of a directory that each lane keeps for itself.
//!
//! A directory's times, version and count of links change with every name. If several lanes change
//! names in it, each keeps that on lines of its own. Another change of the inode, a question for its
//! attributes and its capture first fold the deltas into it, under its guard.
//!
//! *Invariant*: all deltas belong to the transaction in which the inode is dirty. A lane adds to its
//! delta only after the inode was listed in its transaction, and listing it folds the deltas of the
//! transaction before into the image of that. So no delta needs a transaction number, and nothing of
//! the next transaction gets into what is captured of this one.
//!
//! *Locking*: a lane's delta is of [`Rank::LaneList`]; folding takes it under the inode's guard.

use crate::object::totals::{Permit, Totals};
use lanefs_journal::Tid;
use lanefs_lanes::sync::OnceLock;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::{Lane, LaneArc, Mutex, PerLane, Rank};
use lanefs_ondisk::Time;

/// How often another lane than before changes a name before the directory counts as contended: one
/// that several threads fill once is not.
const CONTENDED: u32 = if cfg!(shuttle) { 1 } else { 16 };

/// Subdirectories more or less in a delta at most: a check of the limit of links may miss so many of
/// each lane.
const MOST_LINKS: i32 = 64;

/// Whether several lanes change names in a directory, and what they keep of that.
#[derive(Default)]
pub(crate) struct LaneDeltas {
    /// The lane that last changed a name, plus one, and above it how often that was another than
    /// before. Lossy: only a matter of speed.
    seen: AtomicU32,
    deltas: OnceLock<Deltas>,
    /// The last transaction in which the inode was listed for lanes that keep deltas.
    listed_in: AtomicU64,
}

struct Deltas {
    lanes: PerLane<Slot>,
    _permit: Permit,
}

struct Slot {
    /// Whether `delta` has anything. Readable without the lock by threads ordered after the changes
    /// that they must see.
    any: AtomicBool,
    delta: Mutex<Delta>,
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Delta {
    /// How many names did.
    pub(crate) changes: u32,
    /// When the last one did.
    pub(crate) at: Time,
    /// Subdirectories more.
    pub(crate) links: i32,
}

impl Delta {
    /// Both.
    fn and(self, other: Delta) -> Delta {
        Delta {
            changes: self.changes.wrapping_add(other.changes),
            at: self.at.max(other.at),
            links: self.links + other.links,
        }
    }
}

impl LaneDeltas {
    /// Whether several lanes change names here.
    pub(crate) fn is_contended(&self) -> bool {
        self.deltas.get().is_some()
    }

    /// The calling lane changed a name.
    pub(crate) fn meet(&self, totals: &LaneArc<Totals>) {
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
            self.deltas.get_or_init(|| Deltas::new(permit));
        }
    }

    /// The inode is listed in `tid`, and the deltas of the transaction before are folded.
    pub(crate) fn listed(&self, tid: Tid) {
        if self.is_contended() {
            // Release: a lane that sees it adds to its delta, and that comes after the fold.
            self.listed_in.store(tid.0, Ordering::Release);
        }
    }

    /// Keeps a change in `tid`; false if it is to be made to the inode itself.
    pub(crate) fn add(&self, tid: Tid, at: Time, links: i32) -> bool {
        let Some(deltas) = self.deltas.get() else { return false };
        if self.listed_in.load(Ordering::Acquire) != tid.0 {
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

    /// Whether there is any delta that the caller must know of.
    pub(crate) fn are_any(&self) -> bool {
        let has = |deltas: &Deltas| deltas.lanes.iter().any(|s| s.any.load(Ordering::Relaxed));
        self.deltas.get().is_some_and(has)
    }

    /// All deltas as one, to be folded into the inode, whose guard is held; `None` if there is none.
    pub(crate) fn take(&self) -> Option<Delta> {
        let deltas = self.deltas.get()?;
        let mut all: Option<Delta> = None;
        for slot in deltas.lanes.iter().filter(|slot| slot.any.load(Ordering::Relaxed)) {
            let mut delta = slot.delta.lock();
            slot.any.store(false, Ordering::Relaxed);
            let taken = std::mem::take(&mut *delta);
            all = Some(all.map_or(taken, |all| all.and(taken)));
        }
        all
    }
}

impl Deltas {
    fn new(permit: Permit) -> Deltas {
        let slot = |_| Slot {
            any: AtomicBool::new(false),
            delta: Mutex::new(Rank::LaneList, Delta::default()),
        };
        Deltas { lanes: PerLane::new(slot), _permit: permit }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

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
            deltas.meet(&totals);
        }
        assert!(deltas.is_contended());
        (deltas, totals)
    }

    #[test]
    fn one_lane_alone_does_not_contend() {
        let (deltas, totals) = (LaneDeltas::default(), totals());
        (0..1000).for_each(|_| deltas.meet(&totals));
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
    fn only_so_many_directories_keep_deltas() {
        let totals = totals();
        let permits: Vec<Permit> = std::iter::from_fn(|| Totals::permit(&totals)).collect();
        assert!(Totals::permit(&totals).is_none());
        drop(permits);
        assert!(Totals::permit(&totals).is_some());
    }
}
