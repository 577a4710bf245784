//! What is counted over all inodes of a mount.

use crate::object::window::Windows;
use lanefs_lanes::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::{LaneArc, LaneCounter, Padded};

/// What is counted over all inodes of a mount.
pub(crate) struct Totals {
    /// Directories in memory with changes kept by lane.
    contended: AtomicUsize,
    /// The newest flush that the data of any evicted inode needs: a mark may not be lost with its
    /// inode. Written by eviction alone.
    pub(crate) evicted_mark: Padded<AtomicU64>,
    /// Bytes of large mappings ([`crate::object::map_slot`]).
    pub(crate) mapped: LaneCounter,
    pub(crate) windows: LaneArc<Windows>,
}

/// How many directories in memory keep changes by lane at most: some 8 KiB each.
const MOST_CONTENDED: usize = 4096;

/// Lets one directory keep changes by lane; given back when it is dropped.
pub(crate) struct Permit(LaneArc<Totals>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.contended.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Totals {
    pub(crate) fn new() -> LaneArc<Totals> {
        LaneArc::new(Totals {
            contended: AtomicUsize::new(0),
            evicted_mark: Padded(AtomicU64::new(0)),
            mapped: LaneCounter::new(0),
            windows: Windows::new(),
        })
    }

    /// A permit for one directory more, if there is one.
    pub(crate) fn permit(totals: &LaneArc<Totals>) -> Option<Permit> {
        let more = |taken: usize| (taken < MOST_CONTENDED).then_some(taken + 1);
        let taken = totals.contended.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Permit(totals.clone()))
    }
}
