//! Searches in a bitmap, a word at a time.

use super::bits::{Bitmap, WORD};
use std::ops::Range;

impl Bitmap {
    /// Returns the first clear bit of a range.
    pub fn next_clear(&self, range: Range<u32>) -> Option<u32> {
        self.next(range, |word| !word)
    }

    /// Returns the first set bit of a range.
    pub fn next_set(&self, range: Range<u32>) -> Option<u32> {
        self.next(range, |word| word)
    }

    fn next(&self, range: Range<u32>, wanted: impl Fn(u64) -> u64) -> Option<u32> {
        let end = range.end.min(self.bits);
        let mut at = range.start;
        while at < end {
            let word = wanted(*self.words.get((at / WORD) as usize)?) >> (at % WORD);
            if word != 0 {
                let found = at + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            at = at / WORD * WORD + WORD;
        }
        None
    }

    /// Returns the runs of clear bits in a range, in order. Runs are cut at the ends of the range.
    pub fn clear_runs(&self, range: Range<u32>) -> ClearRuns<'_> {
        ClearRuns { bitmap: self, rest: range.start..range.end.min(self.bits) }
    }

    /// Returns the first run of at least `len` clear bits that begins in a range; it may end beyond
    /// the range.
    pub fn next_clear_run(&self, range: Range<u32>, len: u32) -> Option<Range<u32>> {
        self.clear_runs(range.start..self.bits)
            .take_while(|run| run.start < range.end)
            .find(|run| run.end - run.start >= len)
    }

    /// Returns the longest run of clear bits in a range. If several runs are equally long, returns
    /// the first of them.
    pub fn longest_clear_run(&self, range: Range<u32>) -> Option<Range<u32>> {
        // `max_by_key` would return the last of equal runs.
        self.clear_runs(range).reduce(|best, run| if run.len() > best.len() { run } else { best })
    }

    /// Counts the clear bits.
    pub fn count_clear(&self) -> u32 {
        self.words.iter().map(|word| word.count_zeros()).sum()
    }
}

/// The runs of clear bits in a range of a bitmap.
#[derive(Debug, Clone)]
pub struct ClearRuns<'b> {
    bitmap: &'b Bitmap,
    rest: Range<u32>,
}

impl Iterator for ClearRuns<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        let start = self.bitmap.next_clear(self.rest.clone())?;
        let end = self.bitmap.next_set(start..self.rest.end).unwrap_or(self.rest.end);
        self.rest.start = end;
        Some(start..end)
    }
}
