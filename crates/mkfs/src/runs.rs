//! The blocks in use, kept as runs because a new file system has few runs, whatever its size. With
//! `bigalloc` the runs are rounded to whole clusters after the tables were placed.

use lanefs_ondisk::superblock::Clusters;
use std::collections::BTreeMap;
use std::ops::Range;

/// The blocks in use, in a range that starts at 0.
#[derive(Debug, Clone)]
pub(crate) struct Runs {
    /// Maps the start of each run to its end; runs neither overlap nor touch.
    runs: BTreeMap<u64, u64>,
    end: u64,
    /// The unit in which blocks are taken.
    clusters: Clusters,
}

impl Runs {
    /// Creates the set with all blocks below `end` free.
    pub(crate) fn new(end: u64) -> Runs {
        Runs { runs: BTreeMap::new(), end, clusters: Clusters::new(0) }
    }

    /// For each cluster that has a used block, marks all its blocks as used. From now on whole
    /// clusters are taken.
    pub(crate) fn round_to(&mut self, clusters: Clusters) {
        let before = std::mem::take(&mut self.runs);
        self.clusters = clusters;
        let bits = clusters.bits();
        let mut done = 0;
        for (start, end) in before {
            let (start, end) = ((start >> bits << bits).max(done), end);
            self.take(start, end.saturating_sub(start));
            done = end.div_ceil(1 << bits) << bits;
        }
    }

    /// Marks free blocks as used, together with the rest of their last cluster.
    ///
    /// # Panics
    /// If one of the blocks is in use, which is a bug in the layout.
    pub(crate) fn take(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let bits = self.clusters.bits();
        let len = len.div_ceil(1 << bits) << bits;
        assert!(self.is_free(start, len), "{len} blocks from {start} are not free");
        let mut run = start..start + len;
        if let Some((&before, &end)) = self.runs.range(..start).next_back()
            && end == start
        {
            run.start = before;
        }
        if let Some(end) = self.runs.remove(&run.end) {
            run.end = end;
        }
        self.runs.insert(run.start, run.end);
    }

    /// Marks used blocks as free.
    ///
    /// # Panics
    /// If one of the blocks is free, which is a bug in the caller.
    pub(crate) fn give(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start + len;
        let run = self.runs.range(..=start).next_back().map(|(&from, &to)| from..to);
        let run = run.filter(|run| run.end >= end);
        let run = run.unwrap_or_else(|| panic!("{len} blocks from {start} are not in use"));
        self.runs.remove(&run.start);
        for (from, to) in [(run.start, start), (end, run.end)] {
            if from < to {
                self.runs.insert(from, to);
            }
        }
    }

    /// Returns the number of used blocks.
    pub(crate) fn count(&self) -> u64 {
        self.used_in(0..self.end).map(|run| run.end - run.start).sum()
    }

    /// Returns the block after the last block of the file system.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Forgets the blocks from `end` on.
    pub(crate) fn cut(&mut self, end: u64) {
        self.runs.retain(|&start, _| start < end);
        self.end = end;
    }

    /// Returns whether all of the blocks are free and below the end.
    pub(crate) fn is_free(&self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len).filter(|&end| end <= self.end) else { return false };
        self.runs.range(..end).next_back().is_none_or(|(_, &used)| used <= start)
    }

    /// Returns the first run of free blocks at or after the start of the cluster that contains
    /// `from`. A run that begins before this cluster is cut at the cluster's start.
    pub(crate) fn next_free(&self, from: u64) -> Option<Range<u64>> {
        let from = from >> self.clusters.bits() << self.clusters.bits();
        let start = match self.runs.range(..=from).next_back() {
            Some((_, &end)) if end > from => end,
            _ => from,
        };
        let end = self.runs.range(start..).next().map_or(self.end, |(&next, _)| next);
        (start < end).then_some(start..end)
    }

    /// Returns the first block in `within` at which `len` contiguous free blocks start.
    pub(crate) fn first_fit(&self, within: Range<u64>, len: u64) -> Option<u64> {
        let mut from = within.start;
        loop {
            let free = self.next_free(from)?;
            if free.start + len > within.end {
                return None;
            }
            if free.end - free.start >= len {
                return Some(free.start);
            }
            from = free.end;
        }
    }

    /// Returns the used runs within `range`, cut at its ends.
    pub(crate) fn used_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.runs.range(..range.start).next_back().map(|(&start, _)| start);
        self.runs
            .range(first.unwrap_or(range.start)..range.end)
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
            .filter(|run| run.start < run.end)
    }
}

#[cfg(test)]
mod tests;
