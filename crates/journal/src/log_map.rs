//! Maps log blocks to the device.

use crate::error::Error;
use lanefs_ondisk::Block;

/// Consecutive log blocks in consecutive device blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// The first log block of the run.
    log: u32,
    /// The block of the device that contains log block `log`.
    block: Block,
    len: u32,
}

/// Maps log blocks to blocks of the log's device. The mapping is that of the journal inode's
/// extents, or one to one on a device that contains nothing but a log.
///
/// *Invariant*: every log block is mapped to one block within the device, and no two log blocks are
/// mapped to the same block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMap {
    /// Sorted by log block, without gaps.
    runs: Vec<Run>,
    /// Indices into `runs`, sorted by block of the file system, for [`LogMap::contains`].
    by_place: Vec<usize>,
    len: u32,
    /// The block of the journal superblock.
    superblock: Block,
    /// Whether the log is on the file system's device, so that its blocks are blocks of the file
    /// system.
    is_inside: bool,
}

impl LogMap {
    /// Creates the map of a log of `len` blocks on a file system of `blocks` blocks. The `runs`, in
    /// log order, are those of the journal inode; each has its first log block, its first block of
    /// the file system, and its length in blocks. They must have every log block, and no further
    /// one: the kernel finds log blocks by their positions in the inode, so a log with a hole must
    /// not be joined.
    ///
    /// # Errors
    /// [`Error::LogHole`], [`Error::LogBeyondSize`]; [`Error::BadLogMap`] if a run is empty, outside
    /// the file system, or overlaps another. The image is not trusted.
    pub fn new(
        runs: impl IntoIterator<Item = (u32, Block, u32)>,
        len: u32,
        blocks: u64,
    ) -> Result<LogMap, Error> {
        let mut map = LogMap {
            runs: Vec::new(),
            by_place: Vec::new(),
            len: 0,
            superblock: Block(0),
            is_inside: true,
        };
        for (log, block, run_len) in runs {
            let bad = Error::BadLogMap { log_block: log };
            if log > map.len {
                return Err(Error::LogHole { log_block: map.len });
            }
            let end = block.0.checked_add(run_len.into()).filter(|end| *end <= blocks);
            if run_len == 0 || end.is_none() || log < map.len {
                return Err(bad);
            }
            let next = map.len.checked_add(run_len).ok_or(bad)?;
            map.runs.push(Run { log, block, len: run_len });
            map.len = next;
        }
        if map.len < len {
            return Err(Error::LogHole { log_block: map.len });
        }
        if map.len > len {
            return Err(Error::LogBeyondSize { log_block: map.len - 1, blocks: len });
        }
        map.by_place = (0..map.runs.len()).collect();
        map.by_place.sort_by_key(|i| map.runs[*i].block);
        for pair in map.by_place.windows(2) {
            let (a, b) = (map.runs[pair[0]], map.runs[pair[1]]);
            if a.block.0 + u64::from(a.len) > b.block.0 {
                return Err(Error::BadLogMap { log_block: b.log });
            }
        }
        map.superblock = map.runs.first().map_or(Block(0), |run| run.block);
        Ok(map)
    }

    /// Creates the map of a device that has `blocks` blocks and contains nothing but a log. Log
    /// blocks have the same numbers as the device blocks, and the journal superblock is in block
    /// `superblock`.
    pub fn of_device(superblock: Block, blocks: u32) -> LogMap {
        let runs = vec![Run { log: 0, block: Block(0), len: blocks }];
        LogMap { runs, by_place: vec![0], len: blocks, superblock, is_inside: false }
    }

    /// Returns the block of the journal superblock.
    pub fn superblock(&self) -> Block {
        self.superblock
    }

    /// Returns the runs of file system blocks that contain the log, in log order, each with its
    /// first block and its length in blocks. A log on another device has no runs.
    pub fn runs(&self) -> impl Iterator<Item = (Block, u32)> + '_ {
        self.runs.iter().filter(|_| self.is_inside).map(|run| (run.block, run.len))
    }

    /// Returns the number of log blocks.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether the log has no blocks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device block of log block `log_block`, and the number of log blocks, from this
    /// one on, that are in consecutive device blocks.
    pub fn place(&self, log_block: u32) -> Option<(Block, u32)> {
        let after = self.runs.partition_point(|run| run.log <= log_block);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let skip = log_block - run.log;
        (skip < run.len).then(|| (Block(run.block.0 + u64::from(skip)), run.len - skip))
    }

    /// Returns whether `block` of the file system is part of the log, where nothing else may be
    /// written.
    pub fn contains(&self, block: Block) -> bool {
        if !self.is_inside {
            return false;
        }
        let after = self.by_place.partition_point(|i| self.runs[*i].block <= block);
        after.checked_sub(1).is_some_and(|i| {
            let run = self.runs[self.by_place[i]];
            block.0 - run.block.0 < u64::from(run.len)
        })
    }
}

#[cfg(test)]
mod tests;
