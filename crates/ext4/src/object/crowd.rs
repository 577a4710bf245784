//! Directories that several lanes change names in: what each lane notes of them.
//!
//! A directory's times, version and count of links change with every name. In a crowd each lane
//! notes that on lines of its own, and whoever changes the inode otherwise, asks for its attributes
//! or captures it folds the notes into it first, under its guard.
//!
//! *Invariant*: all notes belong to the transaction in which the inode is dirty. A lane notes only
//! after the inode was listed in its transaction, and who lists it folds what was noted in the one
//! before into the image of that. So there is nothing to tell apart, and no change of the next
//! transaction in what is captured of this one.
//!
//! *Locking*: a lane's note is of [`Rank::LaneList`], taken under the inode's guard by who folds.

use crate::object::home::{Home, Seat};
use crate::plant::{Step, left_out};
use lanefs_journal::Tid;
use lanefs_lanes::sync::OnceLock;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use lanefs_lanes::{Lane, LaneArc, Mutex, PerLane, Rank};
use lanefs_ondisk::Time;

/// How often another lane than before changes a name before the directory counts as crowded: what
/// is made once, by whichever thread was free, is not.
const CROWD: u32 = if cfg!(shuttle) { 1 } else { 16 };

/// Subdirectories more or less that a lane notes at most: who checks the limit of links may miss so
/// many of each lane.
const MOST_LINKS: i32 = 64;

/// Whether several lanes change names in a directory.
#[derive(Default)]
pub(crate) struct Crowd {
    /// The lane that last changed a name, plus one, and above it how often that was another than
    /// before. Lossy: only a matter of speed.
    seen: AtomicU32,
    notes: OnceLock<Notes>,
    /// The last transaction in which the inode was listed for those who note.
    listed_in: AtomicU64,
}

struct Notes {
    lanes: PerLane<Slot>,
    _seat: Seat,
}

struct Slot {
    /// Whether `note` has anything: to be read without the lock by who is ordered behind the
    /// changes that he must see.
    any: AtomicBool,
    note: Mutex<Note>,
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Note {
    /// How many names did.
    pub(crate) changes: u32,
    /// When the last one did.
    pub(crate) at: Time,
    /// Subdirectories more.
    pub(crate) links: i32,
}

impl Note {
    /// Both.
    fn and(self, other: Note) -> Note {
        Note {
            changes: self.changes.wrapping_add(other.changes),
            at: self.at.max(other.at),
            links: self.links + other.links,
        }
    }
}

impl Crowd {
    /// Whether several lanes change names here.
    pub(crate) fn is_there(&self) -> bool {
        self.notes.get().is_some()
    }

    /// The calling lane changed a name.
    pub(crate) fn meet(&self, home: &LaneArc<Home>) {
        let (seen, mine) = (self.seen.load(Ordering::Relaxed), Lane::current().index() as u32 + 1);
        let (last, times) = (seen & 0xffff, seen >> 16);
        if last == mine {
            return;
        }
        let times = (times + u32::from(last != 0)).min(CROWD);
        self.seen.store(times << 16 | mine, Ordering::Relaxed);
        if times >= CROWD
            && self.notes.get().is_none()
            && let Some(seat) = Home::seat(home)
        {
            self.notes.get_or_init(|| Notes::new(seat));
        }
    }

    /// The inode is listed in `tid`, and what was noted in the transaction before is folded.
    pub(crate) fn listed(&self, tid: Tid) {
        if self.is_there() {
            // Release: who sees it notes, and that comes after the fold.
            self.listed_in.store(tid.0, Ordering::Release);
        }
    }

    /// Notes a change in `tid`; false if it is to be made to the inode itself.
    pub(crate) fn note(&self, tid: Tid, at: Time, links: i32) -> bool {
        let Some(notes) = self.notes.get() else { return false };
        let listed = self.listed_in.load(Ordering::Acquire) == tid.0;
        if !listed && !left_out(Step::ListedBeforeNoting) {
            return false;
        }
        let slot = notes.lanes.mine();
        let mut note = slot.note.lock();
        let new = note.and(Note { changes: 1, at, links });
        if new.links.abs() > MOST_LINKS {
            return false;
        }
        *note = new;
        if !slot.any.load(Ordering::Relaxed) {
            slot.any.store(true, Ordering::Relaxed);
        }
        true
    }

    /// Whether anything is noted that the caller must know of.
    pub(crate) fn has_notes(&self) -> bool {
        let noted = |notes: &Notes| notes.lanes.iter().any(|s| s.any.load(Ordering::Relaxed));
        self.notes.get().is_some_and(noted)
    }

    /// All that was noted, to be made to the inode, whose guard is held; `None` if nothing was.
    pub(crate) fn take(&self) -> Option<Note> {
        let notes = self.notes.get()?;
        let mut all: Option<Note> = None;
        for slot in notes.lanes.iter().filter(|slot| slot.any.load(Ordering::Relaxed)) {
            let mut note = slot.note.lock();
            slot.any.store(false, Ordering::Relaxed);
            let taken = std::mem::take(&mut *note);
            all = Some(all.map_or(taken, |all| all.and(taken)));
        }
        all
    }
}

impl Notes {
    fn new(seat: Seat) -> Notes {
        let slot = |_| Slot {
            any: AtomicBool::new(false),
            note: Mutex::new(Rank::LaneList, Note::default()),
        };
        Notes { lanes: PerLane::new(slot), _seat: seat }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::object::home::Counting;

    fn time(secs: i64) -> Time {
        Time { secs, nanos: 0 }
    }

    fn crowded() -> (Crowd, LaneArc<Home>) {
        let (crowd, home) = (Crowd::default(), Home::new(Counting::ByLane));
        for other in 0..=CROWD {
            crowd.seen.store(other << 16 | 0xffff, Ordering::Relaxed);
            crowd.meet(&home);
        }
        assert!(crowd.is_there());
        (crowd, home)
    }

    #[test]
    fn one_lane_alone_is_no_crowd() {
        let (crowd, home) = (Crowd::default(), Home::new(Counting::ByLane));
        (0..1000).for_each(|_| crowd.meet(&home));
        assert!(!crowd.is_there());
        assert!(!crowd.note(Tid(1), time(1), 0));
    }

    #[test]
    fn what_was_noted_is_taken_once() {
        let (crowd, _home) = crowded();
        crowd.listed(Tid(5));
        assert!(crowd.note(Tid(5), time(10), 1));
        assert!(crowd.note(Tid(5), time(9), 1));
        assert!(crowd.has_notes());
        assert_eq!(crowd.take(), Some(Note { changes: 2, at: time(10), links: 2 }));
        assert_eq!(crowd.take(), None);
        assert!(!crowd.has_notes());
    }

    #[test]
    fn nobody_notes_before_the_inode_is_listed_in_his_transaction() {
        let (crowd, _home) = crowded();
        assert!(!crowd.note(Tid(5), time(10), 0));
        crowd.listed(Tid(5));
        assert!(crowd.note(Tid(5), time(10), 0));
        assert!(!crowd.note(Tid(6), time(11), 0));
    }

    #[test]
    fn links_are_noted_up_to_a_bound() {
        let (crowd, _home) = crowded();
        crowd.listed(Tid(5));
        let noted = (0..1000).filter(|_| crowd.note(Tid(5), time(1), 1)).count();
        assert_eq!(noted, MOST_LINKS as usize);
        assert_eq!(crowd.take().map(|note| note.links), Some(MOST_LINKS));
    }

    #[test]
    fn crowds_beyond_a_number_are_none() {
        let home = Home::new(Counting::ByLane);
        let seats: Vec<Seat> = std::iter::from_fn(|| Home::seat(&home)).collect();
        assert!(Home::seat(&home).is_none());
        drop(seats);
        assert!(Home::seat(&home).is_some());
    }
}
