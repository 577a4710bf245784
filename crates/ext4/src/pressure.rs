//! What keeps the caches within their cap.
//!
//! Eviction is for the committer's thread: an object found clean there has its image in the image
//! store and its record in its table block's base. A commit reclaims by itself; who only reads asks
//! for it when a cache has grown past its cap. Without a committer, on a read-only mount, nothing
//! is ever dirty, and whoever loads reclaims.

use crate::Access;
use crate::fs::Fs;
use lanefs_lanes::PerLane;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Loads between two looks at the caches, by one lane.
const LOOK: u64 = if cfg!(shuttle) { 2 } else { 256 };
/// An inode with its snapshot and half a table block is about 2 KiB.
const INODE: u64 = 2048;

/// When the caches are to be looked at.
pub(crate) struct Pressure {
    /// Inodes and metadata blocks loaded.
    loads: PerLane<AtomicU64>,
    /// Somebody asked, and nobody has reclaimed since.
    asked: AtomicBool,
    /// Entries that the last reclaim left: what is held cannot go, so that it is not tried again
    /// before there is more.
    left: AtomicU64,
    /// The eighth of a second in which a commit last reclaimed; the committer's alone.
    eighth: AtomicU64,
}

impl Pressure {
    pub(crate) fn new() -> Pressure {
        Pressure {
            loads: PerLane::new(|_| AtomicU64::new(0)),
            asked: AtomicBool::new(false),
            left: AtomicU64::new(0),
            eighth: AtomicU64::new(0),
        }
    }
}

impl Fs {
    /// An inode or a metadata block was loaded; no guard is held.
    pub(crate) fn note_load(&self) {
        let loads = self.pressure.loads.mine().fetch_add(1, Ordering::Relaxed);
        if !loads.is_multiple_of(LOOK) || self.pressure.asked.load(Ordering::Relaxed) {
            return;
        }
        let entries = (self.inodes.len() + self.meta.len()) as u64;
        let (meta, inodes) = self.caps();
        let left = self.pressure.left.load(Ordering::Relaxed);
        if entries <= meta + inodes || entries < left + left / 8 {
            return;
        }
        if self.pressure.asked.swap(true, Ordering::AcqRel) {
            return;
        }
        match self.access {
            Access::ReadWrite => self.journal.request_commit(),
            // Who asked is alone until the question is taken back.
            Access::ReadOnly => self.reclaim_if_asked(),
        }
    }

    /// Committer, or nobody else at the time: see the module.
    pub(crate) fn reclaim_if_asked(&self) {
        if self.pressure.asked.load(Ordering::Acquire) {
            // Twice, since what was used since the last time gets a second chance.
            self.reclaim();
            self.reclaim();
            lanefs_lanes::advance();
            self.pressure.asked.store(false, Ordering::Release);
        }
    }

    /// Committer: as [`Fs::reclaim`], eight times a second at most. To count and mark what is cached
    /// costs as much as there is, and an fsync must not wait for that each time. What comes in an
    /// eighth of a second is little beside the cap.
    pub(crate) fn reclaim_after_commit(&self) {
        let now = lanefs_lanes::coarse_now();
        let eighth = now.secs.cast_unsigned().wrapping_mul(8) + u64::from(now.nanos / 125_000_000);
        if self.pressure.eighth.swap(eighth, Ordering::Relaxed) != eighth {
            self.reclaim();
        }
    }

    /// Forgets what is over the cap.
    pub(crate) fn reclaim(&self) {
        let (meta, inodes) = self.caps();
        self.meta.reclaim(meta as usize);
        self.inodes.reclaim(inodes as usize);
        self.tables.reclaim();
        let left = (self.inodes.len() + self.meta.len()) as u64;
        self.pressure.left.store(left, Ordering::Relaxed);
    }

    /// Metadata blocks and inodes that the caches may hold.
    fn caps(&self) -> (u64, u64) {
        let block = self.geometry.block_size().bytes() as u64;
        (self.cache_bytes / 2 / block, self.cache_bytes / 2 / INODE)
    }
}
