//! Stores an inode's mappings: they are read without a lock, count against the cap, and are dropped
//! under memory pressure and then read again from the tree.
//!
//! *Locking*: a thread that drops mappings holds the inode's operation lock exclusively. A thread
//! that stores mappings holds the operation lock exclusively, or holds it shared together with
//! `Inode::mapping`. The loader holds that lock shared together with `Inode::loading`. A reader
//! holds it shared or exclusively.

use crate::cache::Evicted;
use crate::object::totals::Totals;
use crate::plan::extent::Map;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Pin, Slot};

/// The size in bytes of a few extents, which every inode is assumed to have (`object::pressure`).
pub(crate) const SMALL: u64 = 192;

/// Holds the mappings of one inode after they were first needed.
#[derive(Default)]
pub(crate) struct MapSlot {
    map: Slot<Map>,
    /// The bytes beyond [`SMALL`], as counted in [`Totals::mapped`].
    counted: AtomicU64,
}

impl MapSlot {
    pub(crate) fn get<'p>(&'p self, pin: &'p Pin) -> Option<&'p Map> {
        self.map.get(pin)
    }

    pub(crate) fn store(&self, map: Map, totals: &Totals) {
        let bytes = map.bytes().saturating_sub(SMALL);
        self.map.store(map);
        self.count(bytes, totals);
    }

    /// Drops the mappings if they are larger than [`SMALL`].
    pub(crate) fn forget_if_large(&self, totals: &Totals) -> Evicted {
        if self.counted.load(Ordering::Relaxed) == 0 {
            return Evicted::Nothing;
        }
        self.map.clear();
        self.count(0, totals);
        Evicted::Contents
    }

    /// Sets the count of bytes beyond [`SMALL`]. For most files the count stays zero, and this
    /// function writes nothing.
    fn count(&self, bytes: u64, totals: &Totals) {
        let before = self.counted.load(Ordering::Relaxed);
        if before != bytes {
            self.counted.store(bytes, Ordering::Relaxed);
            totals.mapped.add(bytes.cast_signed().wrapping_sub(before.cast_signed()));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
