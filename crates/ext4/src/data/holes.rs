//! Claims blocks for the holes of a file, from its preallocation window or the groups.

use crate::alloc::{Claim, Count, Found, Privilege, Request};
use crate::data::file_data::FileData;
use crate::data::mapping::EXTENTS_A_STEP;
use crate::quota::Held;
use lanefs_ondisk::superblock::Clusters;
use lanefs_ondisk::{Block, FileBlock, FileType};
use lanefs_plan::Error;
use lanefs_plan::cluster;
use lanefs_plan::cluster::Filling;
use lanefs_plan::extent::{Extent, Map, Mapping, State};
use std::ops::Range;

/// The claims, in whole clusters, each with its first file block; the extents of the claims and of
/// the existing mappings together; and the reservations that count the claims against the owners'
/// limits.
pub(crate) type Covered = (Vec<(u32, Claim)>, Vec<Extent>, Vec<Held>);

/// In which part of its range a step may cover blocks that were written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlap {
    Anywhere,
    /// Only at the start, before all blocks that the step itself maps as written. So if the tree
    /// has no room for the new mappings, the write has not yet overwritten any data behind the
    /// blocks that it could not map.
    AtStart,
}

/// A file with more blocks than this counts as large when goals are chosen, as in mballoc
/// (`mb_stream_req`).
const STREAM: u32 = 16;
/// The largest number of blocks that an extent of written blocks can have.
const LONGEST: u32 = 32768;
/// The largest size of a window in bytes; up to this size, a new window is as large as the file.
const WINDOW: u64 = 8 << 20;

impl FileData<'_> {
    /// Claims blocks for the holes of `range`. Returns the claims, keyed by file block; the range's
    /// future extents, in order; and the reservations. The result covers only the start of the
    /// range if space runs out, the limit of one step is reached, or `overlap` ends the step.
    pub(crate) fn claim_holes(
        &self,
        range: Range<u32>,
        by: Privilege,
        overlap: Overlap,
    ) -> Result<Covered, Error> {
        let map = self.map()?;
        let clusters = self.objects.volume.clusters();
        let mut claims = Vec::new();
        let mut extents: Vec<Extent> = Vec::new();
        let mut held = Vec::new();
        let unwritten = |start: u32, len: u32, block: Block| Extent {
            start: FileBlock(start),
            len,
            block,
            state: State::Unwritten,
        };
        let mut at = range.start;
        while at < range.end && extents.len() < EXTENTS_A_STEP {
            match map.find(FileBlock(at)) {
                Mapping::Mapped { state: State::Written, .. }
                    if overlap == Overlap::AtStart
                        && extents.last().is_some_and(|last| last.state != State::Written) =>
                {
                    break;
                }
                Mapping::Mapped { block, len, state } => {
                    let len = len.min(range.end - at);
                    extents.push(Extent { start: FileBlock(at), len, block, state });
                    at += len;
                }
                Mapping::Hole { len } => {
                    let hole = at..at + len.min(range.end - at);
                    let (start, wanted) = match cluster::fill(&map, &hole, clusters) {
                        Filling::New { start, clusters } => (start, clusters),
                        Filling::InUse { block, len } => {
                            self.await_unmapping()?;
                            extents.push(unwritten(at, len, block));
                            at += len;
                            continue;
                        }
                    };
                    let claimed =
                        self.hold_clusters(wanted, by).and_then(|(mut more, permitted)| {
                            let wanted = permitted << clusters.bits();
                            let claim = self.claim_for(&map, start, wanted, by)?;
                            let unit = self.objects.volume.cluster_bytes();
                            more.iter_mut()
                                .for_each(|held| held.keep(claim.clusters().into(), unit));
                            held.extend(more);
                            Ok(claim)
                        });
                    let claim = match claimed {
                        Ok(claim) => claim,
                        Err(Error::NoSpace | Error::OverQuota) if !extents.is_empty() => break,
                        Err(error) => return Err(error),
                    };
                    // The hole may start and end inside of a cluster.
                    let whole = unwritten(start, claim.len(), claim.start());
                    let Some(extent) = whole.clip(&hole) else { return Err(Error::NoSpace) };
                    at = extent.end();
                    extents.push(extent);
                    claims.push((start, claim));
                }
            }
        }
        Ok((claims, extents, held))
    }

    /// A transaction may unmap some blocks of a cluster but leave the cluster in use. Waits until
    /// all transactions that did this are durable. Until then a crash could map the blocks again,
    /// so their contents must not be overwritten.
    fn await_unmapping(&self) -> Result<(), Error> {
        let pending = self.inode.state.lock().unmapped_in;
        pending.map_or(Ok(()), |tid| Ok(self.objects.journal.settle(tid)?))
    }

    /// Claims whole clusters for file blocks from `at` on. Takes them from the inode's window if
    /// the window continues at `at`, else from the groups. In the second case, the inode also gets
    /// a new window after these blocks if it is a regular file, no block is mapped from `at` on,
    /// and `at` is not 0.
    fn claim_for(&self, map: &Map, at: u32, len: u32, by: Privilege) -> Result<Claim, Error> {
        let FileData { objects, inode } = *self;
        if let Some(claim) = inode.window.claim(at, len) {
            objects.groups.count(Count::WindowHits, 1);
            return Ok(claim);
        }
        let growing = map.last().is_none_or(|last| last.end() <= at);
        let block_size = objects.volume.block_size() as u64;
        let ahead = match growing && inode.file_type == FileType::Regular && at > 0 {
            // The window has only as many blocks as the file, so that small files claim few blocks.
            true => ((map.blocks() * block_size).min(WINDOW) / block_size) as u32,
            false => 0,
        };
        let goal = self.goal_at(map, at);
        // `drawn` is dropped only after the window is listed. Until then, a thread that lacks space
        // waits for this claim. When it then takes back the blocks of all listed windows, it finds
        // this window too.
        let Found { mut claim, drawn, elsewhere } = objects.claim_blocks(&Request {
            goal,
            want: len.min(LONGEST),
            ahead: ahead.min(LONGEST.saturating_sub(len)),
            at_least: len.min(2048),
            privilege: by,
            stream: (at + len > STREAM).then_some(inode.ino),
            owner: Some(inode.ino),
        })?;
        if let Some(group) = elsewhere {
            inode.place.move_to(group);
        }
        if claim.len() > len {
            let front = claim.split_front(len);
            objects.groups.count(Count::Windows, 1);
            objects.groups.count(Count::WindowBlocks, claim.len());
            let windows = &objects.mount.totals.windows;
            inode.window.put(windows, inode.ino, at + len, claim);
            claim = front;
        }
        drop(drawn);
        Ok(claim)
    }
}

/// Removes from `claims` all claims for clusters that contain file blocks below `end`, and returns
/// them. Splits a claim that reaches beyond the last of these clusters. `claims` is in the order of
/// the file blocks.
pub(crate) fn take_front(
    claims: &mut Vec<(u32, Claim)>,
    end: u32,
    clusters: Clusters,
) -> Vec<Claim> {
    debug_assert!(claims.is_sorted_by_key(|(start, _)| *start));
    let end = clusters.ceil(end);
    let whole = claims.partition_point(|(start, claim)| start + claim.len() <= end);
    let mut taken: Vec<Claim> = claims.drain(..whole).map(|(_, claim)| claim).collect();
    if let Some((start, claim)) = claims.first_mut()
        && *start < end
    {
        taken.push(claim.split_front(end - *start));
        *start = end;
    }
    taken
}
