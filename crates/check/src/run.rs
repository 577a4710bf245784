//! The state that all parts of one check share.

use crate::claims::Claims;
use crate::fault::Fault;
use crate::groups::Groups;
use crate::place::Place;
use crate::report::Collector;
use crate::states::States;
use crate::volume::Volume;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lanefs_lanes::sync::{Arc, OnceLock};
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::quota::{Kind, Usage};
use lanefs_ondisk::{Block, Ino};
use std::collections::{HashMap, HashSet};
use std::ops::{Add, Range};

/// The space that the attributes of an inode take outside of the inode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// The number of clusters that the attribute block and the values in separate inodes take.
    /// Without `bigalloc`, a cluster is a block.
    pub clusters: u64,
    /// The number of references to inodes that hold the value of an attribute.
    pub values: u64,
}

impl Add for Taken {
    type Output = Taken;

    fn add(self, other: Taken) -> Taken {
        let (clusters, values) = (self.clusters + other.clusters, self.values + other.values);
        Taken { clusters, values }
    }
}

/// An attribute block, which several inodes may share.
#[derive(Debug)]
pub struct SharedBlock {
    /// The number of inodes that were found to refer to the block.
    pub found: u32,
    /// One of the inodes that refer to the block, for messages.
    pub ino: Ino,
    pub content: Arc<OnceLock<BlockContent>>,
}

impl SharedBlock {
    pub fn new(ino: Ino) -> SharedBlock {
        SharedBlock { found: 0, ino, content: Arc::default() }
    }
}

/// What was read from an attribute block.
#[derive(Debug, Default)]
pub struct BlockContent {
    /// The reference count in the block.
    pub references: u32,
    /// The space of those attribute values of the block that are stored in separate inodes.
    pub values: Taken,
}

/// The counted usage, keyed by the kind and the id of its owner.
pub type Usages = HashMap<(Kind, u32), Usage>;

/// The state of a check.
pub struct Run<'a> {
    pub volume: &'a Volume,
    pub groups: &'a Groups,
    pub report: &'a Collector,
    /// Clusters that files or the file system itself use.
    pub claims: Claims,
    /// Clusters that the file system itself uses.
    pub own: Claims,
    pub states: &'a States,
    pub shared: Mutex<HashMap<Block, SharedBlock>>,
    /// The number of attribute entries that refer to each inode. The map has only inodes that
    /// contain the value of an attribute.
    pub values: Mutex<HashMap<Ino, u32>>,
    /// The usage of all owners, which is counted only with the feature `quota`.
    pub usages: Mutex<Usages>,
    pub directories: Mutex<Vec<Ino>>,
    /// The inodes that the next mount deletes or truncates.
    pub orphans: &'a HashSet<Ino>,
    /// The number of directory entries that were checked.
    pub entries: AtomicU64,
    /// The number of directory blocks that were read. They are counted because a hostile image
    /// could have one block in many directories.
    pub directory_blocks: AtomicU64,
    /// Whether a file was found that needs the feature `large_file`.
    pub has_large_file: AtomicBool,
    /// Whether this is the first pass over the inodes. Later passes only claim blocks.
    pub first: bool,
    /// Whether a cluster was claimed twice.
    pub has_doubled: AtomicBool,
    /// Whether clusters that are claimed twice are reported.
    pub tells_doubled: bool,
}

impl<'a> Run<'a> {
    pub fn new(
        volume: &'a Volume,
        groups: &'a Groups,
        report: &'a Collector,
        states: &'a States,
        [claims, own]: [Claims; 2],
        orphans: &'a HashSet<Ino>,
        first: bool,
    ) -> Run<'a> {
        Run {
            volume,
            groups,
            report,
            claims,
            own,
            states,
            shared: Mutex::new(Rank::LaneList, HashMap::new()),
            values: Mutex::new(Rank::LaneList, HashMap::new()),
            usages: Mutex::new(Rank::LaneList, HashMap::new()),
            directories: Mutex::new(Rank::LaneList, Vec::new()),
            orphans,
            entries: AtomicU64::new(0),
            directory_blocks: AtomicU64::new(0),
            has_large_file: AtomicBool::new(false),
            first,
            has_doubled: AtomicBool::new(false),
            tells_doubled: false,
        }
    }

    /// Reads the bytes of one inode.
    pub fn read_inode(&self, ino: Ino) -> Option<Vec<u8>> {
        self.groups.read_inode(self.volume, ino)
    }

    /// Counts directory blocks before they are read. Returns false if the count was already above
    /// the number of blocks of the file system before this call. In that case, some blocks are
    /// claimed more than once.
    pub fn may_read(&self, blocks: u32) -> bool {
        let before = self.directory_blocks.fetch_add(blocks.into(), Ordering::Relaxed);
        before <= self.volume.geometry.block_count()
    }

    /// Adds a finding, except in a pass that only claims blocks.
    pub fn add(&self, place: Place, fault: Fault) {
        if self.first {
            self.report.add(place, fault);
        }
    }

    /// Returns the clusters of a run of blocks.
    pub fn clusters(&self, start: Block, len: u64) -> Range<u64> {
        self.volume.clusters(start, len)
    }

    /// Claims blocks of files.
    pub fn claim(&self, place: Place, start: Block, len: u64) {
        self.claim_clusters(place, self.clusters(start, len));
    }

    /// Claims clusters.
    pub fn claim_clusters(&self, place: Place, clusters: Range<u64>) {
        let mut doubled = self.claims.claim(clusters.clone());
        if self.volume.ro_compat(RoCompat::SHARED_BLOCKS) {
            // Files may share blocks with one another, but not with the file system itself.
            let first = self.own.first_of(clusters.clone());
            doubled = first.map(|first| first..clusters.end).into_iter().collect();
        }
        if doubled.is_empty() {
            return;
        }
        self.has_doubled.store(true, Ordering::Relaxed);
        let bits = self.volume.geometry.cluster_bits();
        let first = self.volume.geometry.first_data_block().0;
        // Claims outside of the window are ignored, so no cluster is reported in more than one
        // pass.
        for part in doubled.into_iter().filter(|_| self.tells_doubled) {
            let start = Block((part.start << bits) + first);
            self.report.add(place, Fault::DoublyClaimed { start, len: part.end - part.start });
        }
    }
}
