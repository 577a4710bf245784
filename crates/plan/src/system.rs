//! The blocks of the file system itself: no inode may map them.

use crate::error::Error;
use crate::error::Expected;
use lanefs_lanes::Growing;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::superblock::{Geometry, JournalPlace, Superblock};
use lanefs_ondisk::{Block, Group, Ino};
use std::ops::Range;

/// Runs of blocks that hold superblocks, descriptors and their reserve, bitmaps, inode tables and
/// the journal. Operations never claim, map or free these blocks. The runs consist of whole
/// clusters, and are sorted and merged. Each growth of the file system adds a part after all
/// existing parts.
#[derive(Debug)]
pub struct SystemBlocks {
    parts: Growing<Box<[Range<u64>]>>,
}

impl SystemBlocks {
    /// Creates the set from checked descriptors and the runs of the journal.
    pub fn new(
        geometry: &Geometry,
        descriptors: &[GroupDesc],
        log: impl IntoIterator<Item = (Block, u32)>,
    ) -> SystemBlocks {
        let mut all = SystemBlocks::of_groups(geometry, Group(0), descriptors);
        // With `bigalloc` and 1 KiB blocks, group 0 starts at block 0, but its superblock is in
        // block 1. Its metadata then ends one block later than assumed above, so the whole range is
        // added here.
        all.push(geometry.primary_metadata());
        all.push(0..geometry.first_data_block().0);
        all.extend(log.into_iter().map(|(start, len)| start.0..start.0 + u64::from(len)));
        SystemBlocks { parts: std::iter::once(merged(all, geometry)).collect() }
    }

    /// Adds the file system's own blocks in new groups from `first` on, which all lie after the
    /// blocks of older groups. Two threads must not call this function at the same time.
    pub fn grow(&self, geometry: &Geometry, first: Group, descriptors: &[GroupDesc]) {
        let all = SystemBlocks::of_groups(geometry, first, descriptors);
        self.parts.extend(std::iter::once(merged(all, geometry)));
    }

    /// Returns the runs of the file system's own blocks in the groups from `first` on.
    fn of_groups(geometry: &Geometry, first: Group, descriptors: &[GroupDesc]) -> Vec<Range<u64>> {
        // There are four kinds of runs, and the runs of each kind are mostly sorted and contiguous.
        // Each block is added to the last run of its kind if it continues that run, so even a
        // million groups yield few runs.
        let mut kinds: [Vec<Range<u64>>; 4] = Default::default();
        for (group, desc) in (first.0..).map(Group).zip(descriptors) {
            let first = geometry.group_first_block(group).map_or(0, |block| block.0);
            add(&mut kinds[0], first, u64::from(geometry.group_overhead(group)));
            add(&mut kinds[1], desc.block_bitmap.0, 1);
            add(&mut kinds[2], desc.inode_bitmap.0, 1);
            add(&mut kinds[3], desc.inode_table.0, u64::from(geometry.itable_blocks()));
        }
        kinds.concat()
    }

    fn parts(&self) -> impl Iterator<Item = &[Range<u64>]> {
        (0..).map_while(|part| self.parts.get(part).map(|runs| &**runs))
    }

    /// Returns the number of blocks in the set.
    pub fn count(&self) -> u64 {
        self.parts().flatten().map(|run| run.end - run.start).sum()
    }

    /// Returns the first block of the set among the `len` blocks from `start` on.
    pub fn first_in(&self, start: Block, len: u64) -> Option<Block> {
        let first = self.within(start.0..start.0.saturating_add(len)).next();
        first.map(|run| Block(run.start))
    }

    /// Returns the parts of the runs that lie within a range of blocks.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let end = range.end;
        let from = move |runs: &'_ [Range<u64>]| runs.partition_point(|run| run.end <= range.start);
        self.parts()
            .flat_map(move |runs| runs.get(from(runs)..).unwrap_or_default())
            .take_while(move |run| run.start < end)
            .map(move |run| run.start.max(range.start)..run.end.min(end))
    }
}

/// Extends the runs to whole clusters, and sorts and merges them. With `bigalloc` group 0 starts at
/// block 0, so each cluster begins at a block number that is a multiple of the cluster size.
fn merged(mut all: Vec<Range<u64>>, geometry: &Geometry) -> Box<[Range<u64>]> {
    all.retain(|run| !run.is_empty());
    let bits = geometry.cluster_bits();
    if bits > 0 {
        for run in &mut all {
            *run = (run.start >> bits) << bits..run.end.div_ceil(1 << bits) << bits;
        }
    }
    all.sort_unstable_by_key(|run| run.start);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for run in all {
        match runs.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => runs.push(run),
        }
    }
    runs.into()
}

fn add(runs: &mut Vec<Range<u64>>, start: u64, len: u64) {
    match runs.last_mut() {
        Some(last) if last.end == start => last.end += len,
        _ if len == 0 => {}
        _ => runs.push(start..start + len),
    }
}

/// Returns the file system's own files that the superblock names.
pub fn own_files(superblock: &Superblock) -> Vec<Ino> {
    let journal = match superblock.journal() {
        Some(JournalPlace::Inode(ino)) => Some(ino),
        _ => None,
    };
    let quotas = superblock.quota_files().into_iter().flatten();
    superblock.orphan_file().into_iter().chain(journal).chain(quotas).collect()
}

// Reads group descriptors without a mounted file system.

/// Reads and checks all group descriptors. `read` returns the contents of a block.
///
/// # Errors
/// [`Error::Corruption`], [`Error::TooManyGroups`], and the errors of `read`.
pub fn descriptors(
    geometry: &Geometry,
    checksums: Checksums,
    read: &dyn Fn(Block) -> Result<Vec<u8>, Error>,
) -> Result<Vec<GroupDesc>, Error> {
    // Not preallocated, since the number of groups comes from the superblock and may be wrong.
    let mut descriptors = Vec::new();
    for index in 0..geometry.desc_blocks() {
        let bytes = read(geometry.desc_block(index).expected()?)?;
        for record in bytes.chunks_exact(geometry.desc_size()) {
            let group = Group(descriptors.len() as u32);
            if group.0 < geometry.group_count() {
                let descriptor = GroupDesc::decode(record, group, geometry, checksums)?;
                descriptors.try_reserve(1).map_err(|_| Error::TooManyGroups)?;
                descriptors.push(descriptor);
            }
        }
    }
    Ok(descriptors)
}
