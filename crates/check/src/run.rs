//! One check: what all of its parts share.

use crate::claims::Claims;
use crate::fault::Fault;
use crate::groups::Groups;
use crate::place::Place;
use crate::report::Collector;
use crate::states::States;
use crate::volume::Volume;
use lanefs_lanes::sync::atomic::AtomicU64;
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::{Block, Ino};
use std::collections::HashMap;
use std::ops::Range;

/// An attribute block that inodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBlock {
    /// The reference count in the block.
    pub stored: u32,
    /// The inodes that refer to it.
    pub found: u32,
    /// One of them, for messages.
    pub ino: Ino,
}

/// The references to an inode that holds the value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ValueUse {
    /// The reference count that the inode stores.
    pub stored: u32,
    /// The entries that refer to it.
    pub found: u32,
}

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
    pub values: Mutex<HashMap<Ino, ValueUse>>,
    pub directories: Mutex<Vec<Ino>>,
    /// Entries of directories.
    pub entries: AtomicU64,
    /// Whether this is the first pass over the inodes: later passes only claim blocks.
    pub first: bool,
}

impl<'a> Run<'a> {
    pub fn new(
        volume: &'a Volume,
        groups: &'a Groups,
        report: &'a Collector,
        states: &'a States,
        [claims, own]: [Claims; 2],
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
            directories: Mutex::new(Rank::LaneList, Vec::new()),
            entries: AtomicU64::new(0),
            first,
        }
    }

    /// Reads the bytes of one inode.
    pub fn read_inode(&self, ino: Ino) -> Option<Vec<u8>> {
        self.groups.read_inode(self.volume, ino)
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
        if let Some(cluster) = self.claims.claim(clusters.clone()) {
            let bits = self.volume.geometry.cluster_bits();
            let first = self.volume.geometry.first_data_block().0;
            let start = Block((cluster << bits) + first);
            // Reported in the pass of its window.
            self.report.add(place, Fault::DoublyClaimed { start, len: clusters.end - cluster });
        }
    }
}
