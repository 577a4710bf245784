//! Stores an inode's mappings. Reading them needs no lock besides the operation lock. They count
//! against the memory cap. Under memory pressure they are dropped. When they are needed again, they
//! are read from the extent tree or block map.
//!
//! *Locking*: a thread that drops mappings holds the inode's operation lock exclusively, and also
//! `Inode::mapping` if the inode has holds. A thread that stores mappings holds the operation lock
//! exclusively, or holds both the operation lock in shared mode and `Inode::mapping`. The loader
//! holds both the operation lock in shared mode and `Inode::loading`. A reader holds the operation
//! lock in either mode. For a quota file, `Inode::mapping` alone takes the place of the operation
//! lock.

use crate::cache::Evicted;
use crate::object::totals::Totals;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Pin, Slot};
use lanefs_plan::extent::Map;

/// The size in bytes of a few extents; `object::pressure` assumes that every inode has mappings of
/// this size.
pub(crate) const SMALL: u64 = 192;

/// Holds the mappings of one inode; empty until they are first needed, and after they were dropped.
#[derive(Default)]
pub(crate) struct MapSlot {
    map: Slot<Map>,
    /// The number of bytes that the mappings take beyond [`SMALL`]. [`Totals::mapped`] includes
    /// this number.
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

    /// Sets the number of bytes beyond [`SMALL`]. For most files the number stays zero, and then
    /// this function writes nothing.
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
