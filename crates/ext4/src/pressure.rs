//! What keeps the caches within their cap.
//!
//! Each kind of object has a part of the cap, and what one costs is known, allocations and all; a
//! test holds that against the heap. Names and journal images have parts of their own, kept where
//! they are.
//!
//! | part of the cap | for |
//! |---|---|
//! | 1/4 | inodes, with their nodes, records and mappings |
//! | 3/16 | contents of inode-table blocks |
//! | 3/16 | metadata blocks of one owner, each with the copy and the index that readers read; rolls |
//! | 1/4 | images that wait to be written home, 64 MiB at most (`journal`) |
//! | 1/8 | names (`vfs`) |
//!
//! The thread that loads an object also evicts: each lane looks at the caches once in some loads. Over
//! a cap, one thread at a time makes room; far over it, loaders wait for their turn, so that they do not
//! outrun the evicting thread. What is dirty cannot go, nor an inode to which a commit owes something;
//! over the cap a commit is requested. To make room is to look through all of a kind. A walk seldom comes
//! to that: the blocks of tables that it is over with go a few at a time, by the lane that read them.
//!
//! # Locking
//!
//! An object found clean has its image in the image store and its record in its table block's base,
//! unless it is just being captured: so the committer holds `quiet` while it captures, and whoever
//! evicts holds it too.

use crate::Access;
use crate::fs::Fs;
use crate::inode::Inode;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lanefs_lanes::{Mutex, Padded, PerLane, Rank};

/// Loads between two looks at the caches, by one lane.
const LOOK: u64 = if cfg!(shuttle) { 2 } else { 64 };

/// Bytes of an inode: the object, its node in the map, its record, its mappings, and as much as the
/// allocator adds.
const INODE: u64 = size_of::<Inode>() as u64 + 64 + 256 + 192;

/// Bytes beside the contents of a block of an inode table, or a metadata block.
const BLOCK: u64 = 448;

/// The index of a block's names takes a quarter of the block, with usual names.
const NAMES: u64 = 4;

/// Names that fit into their part of a cap of `bytes`: an entry is a line, and its bucket's part.
pub fn names_within(bytes: u64) -> usize {
    usize::try_from(bytes / 8 / 112).unwrap_or(usize::MAX)
}

/// Bytes of images that may wait to be written home.
pub(crate) fn images_within(bytes: u64) -> u64 {
    (bytes / 4).clamp(1 << 20, 64 << 20)
}

/// When the caches are to be looked at.
pub(crate) struct Pressure {
    /// Inodes and metadata blocks loaded.
    loads: PerLane<AtomicU64>,
    /// Held by who evicts, and by the committer while it captures.
    pub(crate) quiet: Mutex<()>,
    /// Bytes that the last reclaim left: what is held cannot go, so that it is not tried again
    /// before there is more.
    left: AtomicU64,
    /// Whether inodes take most of their part, so that one more is better not loaded only to be
    /// looked at ([`Fs::glance`]).
    pub(crate) crowded: Padded<AtomicBool>,
    /// Inodes that were looked at again without being loaded.
    pub(crate) again: PerLane<AtomicU64>,
    /// The eighth of a second in which a commit last reclaimed; the committer's alone.
    eighth: AtomicU64,
}

/// How many of each the caches have, or may have.
#[derive(Debug, Clone, Copy)]
struct Load {
    inodes: u64,
    meta: u64,
    tables: u64,
    block: u64,
}

/// Bytes of a metadata block: its contents, the copy that readers read, an index of its names.
fn meta_bytes(block: u64) -> u64 {
    2 * block + block / NAMES + BLOCK
}

impl Load {
    fn bytes(self) -> u64 {
        self.inodes * INODE
            + self.meta * meta_bytes(self.block)
            + self.tables * (self.block + BLOCK)
    }

    fn is_over(self, cap: Load) -> bool {
        self.inodes > cap.inodes || self.meta > cap.meta || self.tables > cap.tables
    }

    /// Eighths of it.
    fn eighths(self, n: u64) -> Load {
        let part = |count: u64| count / 8 * n;
        Load { inodes: part(self.inodes), meta: part(self.meta), tables: part(self.tables), ..self }
    }
}

impl Pressure {
    pub(crate) fn new() -> Pressure {
        Pressure {
            loads: PerLane::new(|_| AtomicU64::new(0)),
            quiet: Mutex::new(Rank::Eviction, ()),
            left: AtomicU64::new(0),
            crowded: Padded(AtomicBool::new(false)),
            again: PerLane::new(|_| AtomicU64::new(0)),
            eighth: AtomicU64::new(0),
        }
    }
}

impl Fs {
    /// An inode or a metadata block was loaded; no lock after [`Rank::InodeLoad`] is held.
    pub(crate) fn note_load(&self) {
        // Two threads of one lane may count one load where there were two: it only says how often to
        // look, and an update would be a locked instruction for each.
        let counter = self.pressure.loads.mine();
        let loads = counter.load(Ordering::Relaxed);
        counter.store(loads.wrapping_add(1), Ordering::Relaxed);
        if loads.is_multiple_of(LOOK) {
            self.look_at_caches();
        }
    }

    /// Makes room if there is too little. A function of its own, by which the tool that traces shared
    /// lines tells what happens once in many loads.
    #[cold]
    #[inline(never)]
    fn look_at_caches(&self) {
        let cap = self.cap();
        // Begins before the cap is reached, since who looks is one of many who load.
        let soft = cap.eighths(7);
        let mut now = self.load();
        // Below what evicting leaves, so that walks of looks alone do not come and go.
        let crowded = now.inodes > cap.eighths(5).inodes;
        if self.is_crowded() != crowded {
            self.pressure.crowded.0.store(crowded, Ordering::Relaxed);
        }
        // What a walk is over with goes early, so that it seldom comes to looking through all.
        let walked = cap.eighths(6).tables;
        if now.tables > walked
            && let Some(_quiet) = self.pressure.quiet.try_lock()
        {
            self.tables.forget_walked(walked as usize);
            now = self.load();
            // What went need not come again before there is more.
            if now.bytes() < self.pressure.left.load(Ordering::Relaxed) {
                self.pressure.left.store(now.bytes(), Ordering::Relaxed);
            }
        }
        if !self.is_worth_a_try(now, soft) {
            return;
        }
        let quiet = match now.is_over(cap) {
            true => Some(self.pressure.quiet.lock()),
            false => self.pressure.quiet.try_lock(),
        };
        let Some(quiet) = quiet else { return };
        // Whoever had it before has made room, or found that there is none to make: all who waited
        // for him would find the same, one after the other.
        if !self.is_worth_a_try(self.load(), soft) {
            return;
        }
        // Of blocks more: to look through them takes lines that nobody has near, and in a walk they
        // come quickly.
        self.evict(soft, Load { inodes: cap.eighths(6).inodes, ..cap.eighths(4) });
        drop(quiet);
        lanefs_lanes::advance();
        if self.load().is_over(cap) && self.access == Access::ReadWrite {
            self.journal.request_commit();
        }
    }

    /// Whether evicting may help: more is there than `soft`, and than the last time left.
    fn is_worth_a_try(&self, now: Load, soft: Load) -> bool {
        let left = self.pressure.left.load(Ordering::Relaxed);
        now.is_over(soft) && now.bytes() >= left + left / 16
    }

    /// An inode was made; as [`Fs::note_load`]. What is dirty cannot be evicted: over the cap a commit
    /// is asked for, which makes it clean.
    pub fn note_made(&self) {
        self.note_load();
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

    /// Forgets what is over the cap, and what is idle of the inode tables.
    pub(crate) fn reclaim(&self) {
        let _quiet = self.pressure.quiet.lock();
        self.evict(self.cap(), self.cap());
    }

    /// Of each kind of which there is more than `most`, forgets what is more than `keep`. What was used
    /// since the last time gets a second chance. To look through a kind costs as much as there is of
    /// it, so that nothing is looked through for a few.
    fn evict(&self, most: Load, keep: Load) {
        let before = self.load();
        for _ in 0..2 {
            if before.meta > most.meta {
                // With its blocks goes a directory's roll.
                self.meta.reclaim(keep.meta.saturating_sub(self.rolled()) as usize);
            }
            if before.inodes > most.inodes {
                self.inodes.reclaim(keep.inodes as usize, self.journal.settled());
            }
            // What is idle here has contents or not, and is not counted if not: as is what inodes that
            // went leave behind.
            let over = before.tables > most.tables;
            if over || before.inodes > most.inodes || self.tables.has_empty() {
                let keep = if over { keep.tables } else { most.tables };
                self.tables.reclaim(keep as usize, self.journal.durable());
            }
            if !self.load().is_over(most) {
                break;
            }
        }
        self.pressure.left.store(self.load().bytes(), Ordering::Relaxed);
    }

    fn load(&self) -> Load {
        Load {
            inodes: self.inodes.len() as u64,
            meta: self.meta.len() as u64 + self.rolled(),
            tables: self.tables.loaded() as u64,
            block: self.geometry.block_size().bytes() as u64,
        }
    }

    /// What directories' rolls take, in metadata blocks.
    fn rolled(&self) -> u64 {
        let block = self.geometry.block_size().bytes() as u64;
        self.home.rolled.0.load(Ordering::Relaxed).div_ceil(meta_bytes(block))
    }

    /// What the caches may hold.
    fn cap(&self) -> Load {
        let block = self.geometry.block_size().bytes() as u64;
        let sixteenth = self.cache_bytes / 16;
        Load {
            inodes: 4 * sixteenth / INODE,
            meta: 3 * sixteenth / meta_bytes(block),
            tables: 3 * sixteenth / (block + BLOCK),
            block,
        }
    }

    /// Bytes of what the caches hold, images and all but names.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.load().bytes() + self.journal.image_bytes()
    }
}
