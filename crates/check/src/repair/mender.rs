//! One round of a repair: what it reads, what it changes, and which free clusters it takes.

use super::stage::Stage;
use crate::fault::Fault;
use crate::groups::NOWHERE;
use crate::journal::LogBlocks;
use crate::parents::Parents;
use crate::place::Place;
use crate::record::Record;
use crate::report::Finding;
use crate::run::Run;
use lanefs_device::{Device, OverlayDevice};
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::group_desc::GroupFlags;
use lanefs_ondisk::jbd2::FastChange;
use lanefs_ondisk::{Block, Group, Ino, inode};
use std::io::ErrorKind::StorageFull;
use std::ops::Range;

/// How a repair separates files that use the same blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shared {
    /// The first file keeps the blocks; each of the other files gets its own copy.
    #[default]
    Clone,
    /// The first file keeps the blocks; the other files get holes.
    Cut,
}

/// What a replay does with fast commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fast<'a> {
    /// The replay fails: [`crate::Error::FastCommits`].
    Refused,
    /// The log keeps them, and nothing else. The superblock asks for their replay.
    Kept,
    /// They are lost, or these changes are made again later.
    Lost(&'a [FastChange]),
}

impl Fast<'_> {
    /// Returns whether the changes that are made later give `block` to a file.
    pub fn uses_block(self, block: Block) -> bool {
        let is_range = |change: &FastChange| match change {
            FastChange::AddRange { range, block: first, .. } => {
                block.0.checked_sub(first.0).is_some_and(|n| n < range.len() as u64)
            }
            _ => false,
        };
        matches!(self, Fast::Lost(changes) if changes.iter().any(is_range))
    }

    /// Returns whether the changes that are made later use the inode.
    pub fn uses_inode(self, ino: Ino) -> bool {
        let is_it =
            |change: &FastChange| matches!(change, FastChange::Inode { ino: n, .. } if *n == ino);
        matches!(self, Fast::Lost(changes) if changes.iter().any(is_it))
    }
}

/// A change that a repair makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The object that the repair changes.
    pub place: Place,
    /// The change.
    pub what: String,
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// A round of a repair.
pub struct Mender<'a> {
    pub run: &'a Run<'a>,
    pub parents: &'a Parents,
    device: &'a OverlayDevice,
    pub shared: Shared,
    pub fast: Fast<'a>,
    pub findings: Vec<Finding>,
    actions: &'a mut Vec<Action>,
    /// Whether the round has written anything.
    pub changed: bool,
    /// Whether the view could not take a change.
    pub is_full: bool,
    /// The search for free clusters.
    search: Search,
}

/// A search for free clusters. Clusters that the block bitmaps mark as in use are taken last,
/// because they may belong to files whose mappings cannot be read.
#[derive(Default)]
struct Search {
    /// The cluster at which the search goes on.
    next: u64,
    /// Whether clusters that are marked as in use are taken too.
    takes_marked: bool,
    /// The group whose bitmap was read last, and its bitmap if that is valid.
    bitmap: Option<(Group, Option<Bitmap>)>,
}

impl<'a> Mender<'a> {
    pub fn new(
        run: &'a Run<'a>,
        parents: &'a Parents,
        device: &'a OverlayDevice,
        (shared, fast): (Shared, Fast<'a>),
        findings: Vec<Finding>,
        actions: &'a mut Vec<Action>,
    ) -> Mender<'a> {
        let (changed, is_full, search) = (false, false, Search::default());
        Mender { run, parents, device, shared, fast, findings, actions, changed, is_full, search }
    }

    /// Mends the faults of a stage.
    pub fn mend(&mut self, stage: Stage) {
        let found = self.found(|finding| Stage::of(finding) == Some(stage));
        if found.is_empty() {
            return;
        }
        match stage {
            Stage::Volume => self.mend_volume(&found),
            Stage::Orphans => self.mend_orphans(&found),
            Stage::Files => self.mend_files(&found),
            Stage::Shared => self.mend_shared(&found),
            Stage::Names => self.mend_names(&found),
            Stage::Paths => self.mend_paths(&found),
            Stage::Links => self.mend_links(&found),
            Stage::Quotas => self.mend_quotas(&found),
            Stage::Counts => self.mend_counts(&found),
        }
    }

    fn found(&self, wanted: impl Fn(&Finding) -> bool) -> Vec<Finding> {
        self.findings.iter().filter(|finding| wanted(finding)).cloned().collect()
    }

    /// Returns whether the repair cannot be written through the log. This is the case if the image
    /// has no log, if the log or the superblock is damaged, or if the log's blocks are also used by
    /// another file or by the file system itself.
    pub fn log_is_damaged(&self) -> bool {
        let Some(log) = LogBlocks::of(self.run.volume, self.run.groups) else { return true };
        self.findings.iter().any(|finding| match (&finding.fault, finding.place) {
            (_, Place::Journal) => Stage::of(finding).is_some(),
            (Fault::DoublyClaimed { start, len }, _) => log.overlaps(&self.blocks_of(*start, *len)),
            (Fault::Superblock(_), _) => true,
            (Fault::Sectors { .. }, _) => false,
            (_, place) => place.ino() == Some(log.ino) && Stage::of(finding).is_some(),
        })
    }

    /// Returns whether the inode tables of all groups can be read.
    pub fn has_tables(&self) -> bool {
        let groups = 0..self.run.volume.geometry.group_count();
        groups.map(Group).all(|group| self.run.groups.get(group).is_some())
    }

    /// Returns the blocks of `clusters` clusters; `start` is the first block of the first cluster.
    pub fn blocks_of(&self, start: Block, clusters: u64) -> Range<u64> {
        let bits = self.run.volume.geometry.cluster_bits();
        start.0..start.0.saturating_add(clusters << bits)
    }

    /// Records an action, unless it is equal to the last one.
    pub fn act(&mut self, place: Place, what: impl Into<String>) {
        let action = Action { place, what: what.into() };
        if self.actions.last() != Some(&action) {
            self.actions.push(action);
        }
    }

    /// Writes `bytes` if they differ from the bytes in place. Returns whether they are in place.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        let mut old = vec![0; bytes.len()];
        if self.device.read_at(at, &mut old).is_ok() && old == bytes {
            return true;
        }
        let written = self.device.write_at(at, bytes);
        self.changed |= written.is_ok();
        self.is_full |= matches!(&written, Err(error) if error.source.kind() == StorageFull);
        written.is_ok()
    }

    /// Reads a block, including the changes of this round.
    pub fn read_block(&self, block: Block) -> Option<Vec<u8>> {
        self.run.volume.read_block(block).ok()
    }

    pub fn write_block(&mut self, block: Block, bytes: &[u8]) -> bool {
        self.write(block.0 << self.run.volume.geometry.block_size().bits(), bytes)
    }

    /// Reads an inode, including the changes of this round.
    pub fn read_inode(&self, ino: Ino) -> Option<(Vec<u8>, Record)> {
        let bytes = self.run.read_inode(ino)?;
        let record = Record::decode(&bytes);
        Some((bytes, record))
    }

    /// Writes an inode with its checksum.
    pub fn write_inode(&mut self, ino: Ino, mut bytes: Vec<u8>) {
        if inode::seal(&mut bytes, ino, self.run.volume.checksums).is_ok()
            && let Some(at) = self.run.groups.inode_at(self.run.volume, ino)
        {
            self.write(at, &bytes);
        }
    }

    /// Returns the seed of the checksums of an inode's blocks.
    pub fn seed(&self, ino: Ino, record: &Record) -> Option<Seed> {
        self.run.volume.checksums.seed().map(|seed| seed.of_inode(ino, record.generation))
    }

    /// Takes a free cluster; returns its first block.
    pub fn allocate(&mut self) -> Option<Block> {
        self.allocate_in(0..self.clusters())
    }

    /// Takes a free cluster among `clusters`, at whose start the search began.
    fn allocate_in(&mut self, clusters: Range<u64>) -> Option<Block> {
        loop {
            if let Some(found) = self.next_free(clusters.end) {
                return Some(found);
            }
            if self.search.takes_marked {
                return None;
            }
            self.claim_damaged();
            self.search = Search { next: clusters.start, takes_marked: true, bitmap: None };
        }
    }

    /// Takes a free cluster for a bitmap of `group`. Without `flex_bg`, it must be in the group.
    pub fn allocate_for(&mut self, group: Group) -> Option<Block> {
        if self.run.volume.incompat(Incompat::FLEX_BG) {
            return self.allocate();
        }
        let per_group = u64::from(self.run.volume.geometry.clusters_per_group());
        let next = u64::from(group.0) * per_group;
        let others = std::mem::replace(&mut self.search, Search { next, ..Search::default() });
        let found = self.allocate_in(next..self.clusters().min(next + per_group));
        self.search = others;
        found
    }

    /// Returns the number of clusters that belong to a group.
    fn clusters(&self) -> u64 {
        let geometry = &self.run.volume.geometry;
        let blocks = geometry.block_count() - geometry.first_data_block().0;
        let per_group = u64::from(geometry.clusters_per_group());
        let in_groups = u64::from(geometry.group_count()) * per_group;
        blocks.div_ceil(1 << geometry.cluster_bits()).min(in_groups)
    }

    /// Takes the next free cluster before `end`.
    fn next_free(&mut self, end: u64) -> Option<Block> {
        let geometry = &self.run.volume.geometry;
        let first = geometry.first_data_block().0;
        while self.search.next < end {
            let word = self.run.claims.word_at(self.search.next);
            let at = self.search.next + u64::from(word.trailing_ones());
            if word == u64::MAX {
                self.search.next += 64;
                continue;
            }
            self.search.next = at + 1;
            let start = Block((at << geometry.cluster_bits()) + first);
            let whole = geometry.contains_run(start, 1 << geometry.cluster_bits());
            let is_free = at < end && start.0 > 0 && whole && !self.fast.uses_block(start);
            if is_free && !self.is_marked(at) && self.run.claims.claim(at..at + 1).is_empty() {
                return Some(start);
            }
        }
        None
    }

    /// Returns whether the search skips a cluster because its block bitmap marks it as in use.
    fn is_marked(&mut self, cluster: u64) -> bool {
        if self.search.takes_marked {
            return false;
        }
        let per_group = u64::from(self.run.volume.geometry.clusters_per_group());
        let Ok(group) = u32::try_from(cluster / per_group).map(Group) else { return false };
        if self.search.bitmap.as_ref().is_none_or(|(read, _)| *read != group) {
            self.search.bitmap = Some((group, self.valid_bitmap(group)));
        }
        let bitmap = self.search.bitmap.as_ref().and_then(|(_, bitmap)| bitmap.as_ref());
        // In a group without a valid bitmap, any cluster may belong to a damaged file, so all are
        // taken as marked.
        bitmap.is_none_or(|bitmap| bitmap.get((cluster % per_group) as u32))
    }

    /// Reads the block bitmap of a group; `None` if the bitmap is damaged. A bitmap that was never
    /// written is empty.
    fn valid_bitmap(&self, group: Group) -> Option<Bitmap> {
        let volume = self.run.volume;
        let desc = self.run.groups.get(group)?;
        let clusters = volume.geometry.clusters_in_group(group)?;
        if volume.geometry.features().has_descriptor_checksums()
            && desc.flags.contains(GroupFlags::BLOCK_UNINIT)
        {
            return Some(Bitmap::new(clusters));
        }
        let has_place = desc.block_bitmap != NOWHERE;
        let bytes = self.read_block(desc.block_bitmap).filter(|_| has_place)?;
        Bitmap::verify_blocks(&bytes, desc, &volume.geometry, volume.checksums).ok()?;
        Some(Bitmap::from_bytes(&bytes, clusters))
    }

    /// Returns the time in seconds that the repair stores as a deletion time. This is the time of
    /// the last write to the file system, so that the same image always leads to the same plan. The
    /// result is always too large to be an inode number.
    pub fn time(&self) -> u32 {
        const LEAST: u32 = 1_000_000_000;
        let written = u32::try_from(self.run.volume.superblock().write_time());
        let least = LEAST.max(self.run.volume.geometry.inode_count());
        written.unwrap_or(u32::MAX).max(least)
    }
}

/// Sets a 16-bit field.
pub fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// Sets a 32-bit field.
pub fn put32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}
