//! Decides which caches are too large, and evicts objects from them.

use crate::object::objects::Objects;
use crate::object::pressure::{BUCKETS, INODE, LOOK, MOST, Pressure};
use crate::policy::Access;
use lanefs_lanes::LineHeap;
use lanefs_lanes::sync::atomic::Ordering;

impl Objects {
    /// Counts an inode or a metadata block that was loaded or created. Checks the caches once every
    /// [`LOOK`] calls. The caller holds no lock ranked after [`lanefs_lanes::Rank::InodeLoad`].
    pub(crate) fn note_load(&self) {
        // Two threads of one lane may count two loads as one. The count only determines how often
        // the caches are checked, and an exact count would cost a locked instruction per load.
        let counter = self.pressure.loads.mine();
        let loads = counter.load(Ordering::Relaxed);
        counter.store(loads.wrapping_add(1), Ordering::Relaxed);
        if loads.is_multiple_of(LOOK) {
            self.look_at_caches();
        }
    }

    /// Evicts objects if the caches are too large. This is a separate function because the tool
    /// that traces shared cache lines (`crates/trace`) recognises rare work by the function's name.
    #[cold]
    #[inline(never)]
    fn look_at_caches(&self) {
        if !self.evict_some(BUCKETS) {
            return;
        }
        lanefs_lanes::advance();
        LineHeap::trim_some();
        let over = self.pressure.inodes.is_over(self.inodes_and_mappings())
            || self.pressure.meta.is_over(self.metadata_there())
            || self.pressure.tables.is_over(self.tables.loaded());
        if over && self.access == Access::ReadWrite {
            self.journal.request_commit();
        }
    }

    /// Evicts objects of each kind that takes more than 7/8 of its part of the cap, and visits at
    /// most `buckets` buckets for each kind. Returns false if no kind takes so much; table blocks
    /// without contents do not count for this result.
    fn evict_some(&self, buckets: usize) -> bool {
        let settled = self.journal.settled();
        let Pressure { inodes, meta, tables, .. } = &self.pressure;
        let wanted = |excess: u64| excess.min(MOST) as usize;
        let too_many = [
            wanted(inodes.excess(self.inodes_and_mappings())),
            wanted(meta.excess(self.metadata_there())),
            wanted(tables.excess(self.tables.loaded())),
        ];
        // Inodes are evicted first, because an inode in memory keeps its table block in memory.
        if too_many[0] > 0 {
            self.inodes.evict(too_many[0], buckets, settled);
        }
        if too_many[1] > 0 {
            self.meta.blocks.evict(too_many[1], buckets, settled);
        }
        // A table block takes memory even without its contents, so it counts as at least half a
        // table block with contents.
        let left = tables.excess(self.tables.blocks.len() / 2);
        let too_many_tables = too_many[2].max(wanted(left));
        if too_many_tables > 0 {
            self.tables.blocks.evict(too_many_tables, buckets, settled);
        }
        too_many.iter().any(|many| *many > 0)
    }

    /// Returns the number of inodes in memory, plus the memory of large mappings in units of one
    /// inode.
    fn inodes_and_mappings(&self) -> usize {
        let mapped = u64::try_from(self.mount.totals.mapped.sum()).unwrap_or(0);
        self.inodes.len() + (mapped / INODE) as usize
    }

    /// Returns the number of metadata blocks in memory, plus the memory of groups' bitmaps in units
    /// of one block.
    fn metadata_there(&self) -> usize {
        let bitmaps = self.groups.bitmaps.bytes().div_ceil(self.pressure.meta.bytes);
        self.meta.blocks.len() + bitmaps as usize
    }

    /// Committer: evicts objects that the commit has made clean, if there are too many. Runs at
    /// most eight times a second, because an fsync must not wait for it each time.
    pub(crate) fn reclaim_after_commit(&self) {
        let now = lanefs_lanes::coarse_now();
        let eighth = now.secs.cast_unsigned().wrapping_mul(8) + u64::from(now.nanos / 125_000_000);
        if self.pressure.eighth.swap(eighth, Ordering::Relaxed) != eighth {
            self.evict_some(BUCKETS);
            LineHeap::trim_some();
        }
    }

    /// Returns how many inodes, metadata blocks and inode-table blocks are in memory.
    pub(crate) fn cached(&self) -> (usize, usize, usize) {
        (self.inodes.len(), self.meta.blocks.len(), self.tables.blocks.len())
    }

    /// Returns the size of the caches in bytes. Images are included, but names are not.
    pub(crate) fn cached_bytes(&self) -> u64 {
        let Pressure { inodes, meta, tables, .. } = &self.pressure;
        self.inodes_and_mappings() as u64 * inodes.bytes
            + self.metadata_there() as u64 * meta.bytes
            + self.tables.loaded() as u64 * tables.bytes
            + self.journal.image_bytes()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
