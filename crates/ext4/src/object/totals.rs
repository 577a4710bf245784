//! Keeps totals over all inodes of a mount.

use crate::object::window::Windows;
use lanefs_lanes::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use lanefs_lanes::{LaneArc, LaneCounter, Padded};

/// Holds counts over all inodes of a mount.
pub(crate) struct Totals {
    /// The number of directories in memory that keep deltas by lane ([`crate::object::contended`]).
    contended: AtomicUsize,
    /// The newest flush that the data of any evicted inode needs. It is kept here because a flush
    /// mark must not be lost when its inode is evicted. Written only by eviction.
    pub(crate) evicted_mark: Padded<AtomicU64>,
    /// The size of large mappings in bytes ([`crate::object::map_slot`]).
    pub(crate) mapped: LaneCounter,
    pub(crate) windows: LaneArc<Windows>,
}

/// The largest number of directories in memory that keep deltas by lane. The deltas of a directory
/// take about 8 KiB.
const MOST_CONTENDED: usize = 4096;

/// A permit for one directory to keep deltas by lane. The permit is returned when this value is
/// dropped.
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

    /// Returns a permit for one more directory, or `None` if all are in use.
    pub(crate) fn permit(totals: &LaneArc<Totals>) -> Option<Permit> {
        let more = |taken: usize| (taken < MOST_CONTENDED).then_some(taken + 1);
        let taken = totals.contended.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Permit(totals.clone()))
    }
}
