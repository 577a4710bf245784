//! The way from an inode back to its mount, and where lanes count their holds on inodes.
//!
//! Every inode has one, and the last hold of a nameless inode goes it. So neither copying it nor
//! going it writes a line that lanes share: each lane has a keeper of its own, and counts on that.

use crate::fs::Fs;
use crate::object::inode::Inode;
use crate::object::window::Windows;
use lanefs_lanes::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock, Weak};
use lanefs_lanes::{LaneArc, LaneCounter, Padded, PerLane, Shares};

/// Where inodes belong.
pub(crate) struct Home {
    /// Set once the mount is there to be led to.
    ways: OnceLock<PerLane<Weak<Keeper>>>,
    /// Not with inodes behind one lock, under which they are held: that lock orders all anyway.
    shares: Option<Shares<Inode>>,
    /// Directories in memory in which lanes note what they change.
    crowds: AtomicUsize,
    /// The newest flush that the data of any evicted inode needs: a mark may not be lost with its
    /// inode. Written by eviction alone.
    pub(crate) evicted_mark: Padded<AtomicU64>,
    /// Bytes of large mappings ([`crate::data::map_slot`]).
    pub(crate) mapped: LaneCounter,
    pub(crate) windows: Windows,
}

/// How many directories in memory lanes take notes of at most: some 8 KiB each.
const MOST_CROWDS: usize = 4096;

/// One of them, given back when it goes.
pub(crate) struct Seat(LaneArc<Home>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.crowds.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps the mount in memory, on lines of its own.
#[repr(align(128))]
struct Keeper(Arc<Fs>);

/// The keepers, which the mount has: when it is gone, ways lead nowhere.
pub(crate) struct Keepers {
    _lanes: PerLane<Arc<Keeper>>,
    home: LaneArc<Home>,
}

/// Whether lanes count their holds apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counting {
    ByLane,
    InOneWord,
}

impl Home {
    pub(crate) fn new(counting: Counting) -> LaneArc<Home> {
        let shares = (counting == Counting::ByLane).then(Shares::new);
        LaneArc::new(Home {
            ways: OnceLock::new(),
            shares,
            crowds: AtomicUsize::new(0),
            evicted_mark: Padded(AtomicU64::new(0)),
            mapped: LaneCounter::new(0),
            windows: Windows::new(),
        })
    }

    /// A seat for one directory more, if there is one.
    pub(crate) fn seat(home: &LaneArc<Home>) -> Option<Seat> {
        let more = |taken: usize| (taken < MOST_CROWDS).then_some(taken + 1);
        let taken = home.crowds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Seat(home.clone()))
    }

    pub(crate) fn shares(&self) -> Option<&Shares<Inode>> {
        self.shares.as_ref()
    }

    /// Runs `visit` with the mount, if it is there.
    pub(crate) fn visit(&self, visit: impl FnOnce(&Fs)) {
        let keeper = self.ways.get().and_then(|ways| ways.mine().upgrade());
        if let Some(keeper) = keeper {
            visit(&keeper.0);
        }
    }
}

impl Keepers {
    /// Opens the ways to `fs`.
    pub(crate) fn new(fs: &Arc<Fs>) -> Keepers {
        let lanes = PerLane::new(|_| Arc::new(Keeper(fs.clone())));
        let ways = PerLane::new(|lane| Arc::downgrade(lanes.of(lane)));
        let opened = fs.home.ways.set(ways);
        debug_assert!(opened.is_ok(), "one mount has one set of keepers");
        Keepers { _lanes: lanes, home: fs.home.clone() }
    }
}

impl Drop for Keepers {
    fn drop(&mut self) {
        // Shares keep inodes, and those their home, in memory.
        if let Some(shares) = self.home.shares() {
            shares.clear();
        }
    }
}
