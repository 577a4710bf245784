//! Counts the work of the allocators, by lane.

use lanefs_lanes::LaneCounters;

/// The events that are counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    /// The searches for blocks, and those for inodes.
    BlockSearches,
    InodeSearches,
    /// Groups that searches looked at, and groups that they skipped because another thread was
    /// using them.
    GroupsTried,
    GroupsBusy,
    /// Moves of the place for a file's new blocks, or for a directory's new inodes, to a group of
    /// the caller's region.
    Moves,
    /// Preallocation windows, the blocks in them, and claims that got their blocks from a window.
    Windows,
    WindowBlocks,
    WindowHits,
}

const COUNTS: usize = Count::WindowHits as usize + 1;

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Tally(LaneCounters<COUNTS>);

/// The work of the allocators since the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocStatistics {
    /// Searches for blocks. Blocks from a window need no search.
    pub block_searches: u64,
    /// Searches for inode numbers.
    pub inode_searches: u64,
    /// Groups that these searches looked at.
    pub groups_tried: u64,
    /// Groups that these searches skipped because another thread was using them.
    pub groups_busy: u64,
    /// How often the place for a directory's new inodes, or for a file's new blocks, moved to the
    /// caller's own region, because several callers worked in one group.
    pub moves: u64,
    /// Preallocation windows that were claimed.
    pub windows: u64,
    /// Blocks in all preallocation windows, counted when each window was claimed.
    pub window_blocks: u64,
    /// Claims that got their blocks from a window.
    pub window_hits: u64,
}

impl Tally {
    /// Adds `n` to a counter of the lane.
    pub(crate) fn add(&self, count: Count, n: u32) {
        self.0.add(count as usize, n.into());
    }

    /// Returns the sums over all lanes.
    pub(crate) fn read(&self) -> AllocStatistics {
        let sums = self.0.sums();
        let of = |count: Count| sums[count as usize].max(0) as u64;
        AllocStatistics {
            block_searches: of(Count::BlockSearches),
            inode_searches: of(Count::InodeSearches),
            groups_tried: of(Count::GroupsTried),
            groups_busy: of(Count::GroupsBusy),
            moves: of(Count::Moves),
            windows: of(Count::Windows),
            window_blocks: of(Count::WindowBlocks),
            window_hits: of(Count::WindowHits),
        }
    }
}

impl AllocStatistics {
    /// Returns all counts with their names.
    pub(crate) fn entries(&self) -> [(&'static str, u64); 8] {
        [
            ("alloc.block_searches", self.block_searches),
            ("alloc.inode_searches", self.inode_searches),
            ("alloc.groups_tried", self.groups_tried),
            ("alloc.groups_busy", self.groups_busy),
            ("alloc.moves", self.moves),
            ("alloc.windows", self.windows),
            ("alloc.window_blocks", self.window_blocks),
            ("alloc.window_hits", self.window_hits),
        ]
    }
}
