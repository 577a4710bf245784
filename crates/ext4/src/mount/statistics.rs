//! Statistics of a mount.

use crate::object::fs::Fs;
use lanefs_lanes::Contention;

/// A reading of a mount's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics {
    /// For each rank, how often the threads of the whole process waited for locks that were not
    /// free, and how long they waited in total.
    pub locks: Vec<Contention>,
    /// The journal's statistics since the mount.
    pub journal: lanefs_journal::Statistics,
    /// For each reason, the number of fsyncs that made a full commit although the mount writes fast
    /// commits.
    pub fast_refused: Vec<(&'static str, u64)>,
    /// The work of the allocators since the mount, with the name of each count.
    pub alloc: Vec<(&'static str, u64)>,
    /// Inodes in memory.
    pub cached_inodes: u64,
    /// Blocks of directories, extent trees and attributes in memory.
    pub cached_metadata: u64,
    /// Blocks of inode tables in memory.
    pub cached_tables: u64,
    /// Bytes of group bitmaps in memory.
    pub cached_bitmaps: u64,
    /// Bytes of all these caches, and of block images that are not written to their final locations
    /// yet; names are not counted.
    pub cached_bytes: u64,
    /// The largest amount of memory that the caches may take, in bytes.
    pub cache_cap: u64,
    /// Inodes that a FUSE kernel knows and that are not in memory.
    pub known_inodes: u64,
    /// Bytes of the tables that keep their look-up counts.
    pub known_bytes: u64,
    /// Look-ups that the kernel forgot without having them: a count is wrong if it is not 0.
    pub unknown_forgets: u64,
    /// Values that were replaced or removed but are not freed yet, since some thread may still read
    /// them. Counts those of the whole process.
    pub retired: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Blocks of the file system, including those of its own metadata.
    pub size_blocks: u64,
    /// Block size in bytes.
    pub block_bytes: u64,
}

impl Statistics {
    /// Returns all figures with their names, for example `lock.guard.waits`. Each call returns the
    /// same names. Figures that only increase are counters, the others are present values.
    pub fn entries(&self) -> Vec<(String, u64)> {
        let journal = &self.journal;
        let mut all: Vec<(String, u64)> = [
            ("journal.commits", journal.commits),
            ("journal.flushes", journal.flushes),
            ("journal.durable_writes", journal.durable_writes),
            ("journal.blocks_logged", journal.blocks_logged),
            ("journal.revokes_logged", journal.revokes_logged),
            ("journal.log_blocks", journal.log_blocks),
            ("journal.checkpoints", journal.checkpoints),
            ("journal.blocks_in_place", journal.blocks_in_place),
            ("journal.credit_waits", journal.credit_waits),
            ("fast_commit.commits", journal.fast_commits),
            ("fast_commit.blocks", journal.fast_blocks),
            ("cache.inodes", self.cached_inodes),
            ("cache.metadata_blocks", self.cached_metadata),
            ("cache.table_blocks", self.cached_tables),
            ("cache.bitmap_bytes", self.cached_bitmaps),
            ("cache.bytes", self.cached_bytes),
            ("cache.cap_bytes", self.cache_cap),
            ("cache.known_inodes", self.known_inodes),
            ("cache.known_bytes", self.known_bytes),
            ("cache.unknown_forgets", self.unknown_forgets),
            ("cache.retired", self.retired),
            ("free.blocks", self.free_blocks),
            ("free.inodes", self.free_inodes),
            ("size.blocks", self.size_blocks),
            ("size.block_bytes", self.block_bytes),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let counted = self.fast_refused.iter().chain(&self.alloc);
        all.extend(counted.map(|(name, value)| ((*name).to_owned(), *value)));
        for lock in &self.locks {
            let rank = format!("{:?}", lock.rank).to_lowercase();
            all.push((format!("lock.{rank}.waits"), lock.waits));
            all.push((format!("lock.{rank}.ns"), lock.nanos));
        }
        all
    }
}

impl Fs {
    /// Returns the statistics of this mount, and the lock waits of the whole process. Scans all
    /// caches to count their entries, so it is too slow to be called for each operation.
    pub fn statistics(&self) -> Statistics {
        let (inodes, metadata, tables) = self.cached();
        let (known_inodes, known_bytes) = self.mount.known.size();
        let space = self.stat_fs();
        Statistics {
            locks: lanefs_lanes::contention(),
            journal: self.journal_statistics(),
            fast_refused: self.fast.iter().flat_map(|fast| fast.refused()).collect(),
            alloc: self.groups.statistics(),
            cached_inodes: inodes as u64,
            cached_metadata: metadata as u64,
            cached_tables: tables as u64,
            cached_bitmaps: self.groups.bitmaps.bytes(),
            cached_bytes: self.cached_bytes(),
            cache_cap: self.options.cache_bytes,
            known_inodes: known_inodes as u64,
            known_bytes: known_bytes as u64,
            unknown_forgets: self.mount.known.unknown(),
            retired: lanefs_lanes::limbo() as u64,
            free_blocks: space.blocks_free,
            free_inodes: space.inodes_free,
            size_blocks: self.volume.geometry().block_count(),
            block_bytes: u64::from(space.block_size),
        }
    }
}
