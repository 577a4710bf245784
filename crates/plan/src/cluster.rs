//! Determines which clusters a change of mappings takes, and which it frees (feature `bigalloc`).
//!
//! Extents count blocks, but space is allocated in clusters. A *logical cluster* is a run of file
//! blocks that is as long as a cluster and starts at a multiple of this length. All its mapped
//! blocks lie in one physical cluster, each at the same offset as in the logical cluster. So a
//! cluster is in use while any of its blocks is mapped, and a hole in a logical cluster that is in
//! use needs no new space.
//!
//! Without `bigalloc` a cluster is a block, and nothing is rounded.

use crate::extent::{Extent, Map, State, overlapping};
use lanefs_ondisk::superblock::Clusters;
use lanefs_ondisk::{Block, FileBlock};
use std::ops::Range;

/// The blocks to which the first file blocks of a hole are mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filling {
    /// The cluster where the hole starts is already in use. The first file blocks of the hole get
    /// `len` blocks of this cluster, from `block` on.
    InUse {
        /// The first physical block.
        block: Block,
        /// The number of blocks.
        len: u32,
    },
    /// New clusters, which belong to the file blocks from `start` on.
    New {
        /// The first file block of the first cluster; the hole may start at a later block.
        start: u32,
        /// The number of clusters.
        clusters: u32,
    },
}

/// How a change of mappings changes the space that the file uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The blocks that are no longer mapped, or no longer mapped at the same file block.
    pub unmapped: Vec<Extent>,
    /// The clusters that are no longer in use, as extents whose lengths count blocks.
    pub freed: Vec<Extent>,
    /// The number of clusters that come into use.
    pub added: u32,
    /// Whether a cluster stays in use although the change unmaps some of its blocks.
    pub keeps_unmapped: bool,
}

/// Returns how to fill the start of `hole`, a range without mappings in `map`.
pub fn fill(map: &Map, hole: &Range<u32>, clusters: Clusters) -> Filling {
    if clusters.are_blocks() {
        return Filling::New { start: hole.start, clusters: hole.end - hole.start };
    }
    let start = clusters.floor(hole.start);
    let end = clusters.ceil(hole.start.saturating_add(1));
    if let Some(other) = overlapping(map, start..end).first() {
        let base = other.block.0 - u64::from(other.start.0 - start);
        let block = Block(base + u64::from(hole.start - start));
        return Filling::InUse { block, len: hole.end.min(end) - hole.start };
    }
    // File blocks after the hole may already use the last cluster.
    let last = clusters.floor(hole.end);
    let behind = hole.end..clusters.ceil(hole.end);
    let end = if overlapping(map, behind.clone()).is_empty() { behind.end } else { last };
    Filling::New { start, clusters: clusters.holding(end - start) }
}

/// Returns how the space usage changes if the mappings of `range` in `map` are replaced by `with`.
pub fn usage(map: &Map, range: &Range<u32>, with: &[Extent], clusters: Clusters) -> Usage {
    let before = overlapping(map, range.clone());
    let unmapped = without(&before, with);
    if clusters.are_blocks() {
        let kept = total(&before) - total(&unmapped);
        let freed = unmapped.clone();
        return Usage { freed, unmapped, added: total(with) - kept, keeps_unmapped: false };
    }
    // The first and the last cluster may also contain blocks outside of the range.
    let (first, end) = (clusters.floor(range.start), clusters.ceil(range.end));
    let before = units(&overlapping(map, first..end), clusters);
    let mut after = overlapping(map, first..range.start);
    after.extend(with);
    after.extend(overlapping(map, range.end..end));
    let after = units(&after, clusters);
    let freed = without(&before, &after);
    Usage {
        keeps_unmapped: !without(&units(&unmapped, clusters), &freed).is_empty(),
        freed: freed.iter().map(|unit| in_blocks(unit, clusters)).collect(),
        added: total(&without(&after, &before)),
        unmapped,
    }
}

/// Returns a file block at or after `end` where the blocks of `extent` can be mapped. `before` is
/// the mapping that ends at `end`, if there is one. `before` and `extent` may be parts of one
/// cluster.
pub fn place_behind(
    before: Option<&Extent>,
    end: u32,
    extent: &Extent,
    clusters: Clusters,
) -> Option<u32> {
    if let Some(before) = before {
        let gap = extent.block.0.checked_sub(before.block.0 + u64::from(before.len));
        let room = clusters.ceil(end) - end;
        if let Some(gap) = gap.and_then(|gap| u32::try_from(gap).ok())
            && gap < room
        {
            return Some(end + gap);
        }
    }
    clusters.ceil(end).checked_add(clusters.offset(extent.block.0))
}

/// Returns the first misplaced extent of `map`. An extent is misplaced in two cases. In the first,
/// its offset in its physical cluster is not its offset in its logical cluster. In the second, it
/// shares its logical cluster with the extent before it, but not its physical cluster.
pub fn misplaced(map: &Map, clusters: Clusters) -> Option<Extent> {
    if clusters.are_blocks() {
        return None;
    }
    let mut last: Option<Extent> = None;
    map.iter().find(|extent| {
        let is_off = clusters.offset(extent.start.0.into()) != clusters.offset(extent.block.0);
        let unit = unit(extent, clusters);
        let is_divided = last.is_some_and(|last| {
            let (end, block) = (last.start.0 + last.len - 1, last.block.0 + u64::from(last.len));
            end == unit.start.0 && block - 1 != unit.block.0
        });
        last = Some(unit);
        is_off || is_divided
    })
}

/// Returns the clusters of an extent, as an extent whose numbers count clusters.
fn unit(extent: &Extent, clusters: Clusters) -> Extent {
    let bits = clusters.bits();
    let start = extent.start.0 >> bits;
    let len = (extent.end().saturating_sub(1) >> bits) - start + 1;
    let block = Block(extent.block.0 >> bits);
    Extent { start: FileBlock(start), len, block, state: State::Written }
}

/// Returns the clusters of ascending extents, each once.
fn units(extents: &[Extent], clusters: Clusters) -> Vec<Extent> {
    let mut units: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        let unit = unit(extent, clusters);
        let from = units.last().map_or(0, Extent::end);
        units.extend(unit.clip(&(from..unit.end())));
    }
    units
}

fn in_blocks(unit: &Extent, clusters: Clusters) -> Extent {
    let bits = clusters.bits();
    Extent {
        start: FileBlock(unit.start.0 << bits),
        len: unit.len << bits,
        block: Block(unit.block.0 << bits),
        state: unit.state,
    }
}

/// Returns the parts of `these` that `those` leaves unmapped or maps to other physical blocks.
fn without(these: &[Extent], those: &[Extent]) -> Vec<Extent> {
    let mut left = Vec::new();
    for extent in these {
        let mut at = extent.start.0;
        let same = those.iter().filter(|other| {
            // If the difference between physical and logical block numbers is the same in both
            // extents, they map the same file blocks to the same physical blocks.
            other.block.0.wrapping_sub(u64::from(other.start.0))
                == extent.block.0.wrapping_sub(u64::from(extent.start.0))
        });
        for other in same {
            let Some(common) = other.clip(&(extent.start.0..extent.end())) else { continue };
            if at < common.start.0 {
                left.extend(extent.clip(&(at..common.start.0)));
            }
            at = at.max(common.end());
        }
        if at < extent.end() {
            left.extend(extent.clip(&(at..extent.end())));
        }
    }
    left
}

/// Returns the total number of blocks in these extents.
pub fn total(extents: &[Extent]) -> u32 {
    extents.iter().map(|extent| extent.len).sum()
}

#[cfg(test)]
mod tests;
