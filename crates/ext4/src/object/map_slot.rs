//! Where an inode keeps its mappings: read without a lock, counted against the cap, forgotten under
//! pressure and then read again from the tree.
//!
//! *Locking*: stored and forgotten with the inode's operation lock held: exclusively, or shared under
//! `Inode::loading` by the loader. Read with it held, shared or exclusively.

use crate::cache::Evicted;
use crate::object::totals::Totals;
use crate::plan::extent::Map;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Pin, Slot};

/// Bytes of mappings that every inode is counted with (`object::pressure`): a few extents.
pub(crate) const SMALL: u64 = 192;

/// The mappings of one inode, once they were needed.
#[derive(Default)]
pub(crate) struct MapSlot {
    map: Slot<Map>,
    /// Bytes beyond [`SMALL`], as counted in [`Totals::mapped`].
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

    /// Forgets mappings that are more than every inode is counted with.
    pub(crate) fn forget_if_large(&self, totals: &Totals) -> Evicted {
        if self.counted.load(Ordering::Relaxed) == 0 {
            return Evicted::Nothing;
        }
        self.map.clear();
        self.count(0, totals);
        Evicted::Contents
    }

    /// Of most files these are none before and after, and nothing is written.
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
