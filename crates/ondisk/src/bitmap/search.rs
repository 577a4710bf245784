//! Searches in a bitmap, a word at a time.

use super::bits::{Bitmap, WORD};
use std::ops::Range;

/// For each order, the bits within a word at which an aligned run of that order may start.
const ALIGNED: [u64; 6] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
];

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

    /// Returns the runs of clear bits in a range, in order, cut at its ends.
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

    /// Returns the longest run of clear bits of a range: the first one, if several are equally
    /// long.
    pub fn longest_clear_run(&self, range: Range<u32>) -> Option<Range<u32>> {
        // `max_by_key` would return the last of equal runs.
        self.clear_runs(range).reduce(|best, run| if run.len() > best.len() { run } else { best })
    }

    /// Counts the clear bits.
    pub fn count_clear(&self) -> u32 {
        self.words.iter().map(|word| word.count_zeros()).sum()
    }

    /// Counts the set bits.
    pub fn count_set(&self) -> u32 {
        self.bits - self.count_clear()
    }

    /// Returns the largest `k` for which there is a run of `2^k` clear bits that starts at a
    /// multiple of `2^k`; `None` if all bits are set.
    pub fn largest_clear_order(&self) -> Option<u32> {
        let mut best = None;
        // Whether each word is all clear; such words form the runs of the higher orders.
        let mut clear: Vec<bool> = Vec::with_capacity(self.words.len());
        for word in &self.words {
            let mut runs = !word;
            let mut order = 0;
            while runs != 0 {
                best = best.max(Some(order));
                let Some(aligned) = ALIGNED.get(order as usize + 1) else { break };
                runs = runs & (runs >> (1 << order)) & aligned;
                order += 1;
            }
            clear.push(*word == 0);
        }
        let mut order = WORD.trailing_zeros();
        while clear.contains(&true) {
            best = Some(order);
            clear = clear.as_chunks().0.iter().map(|&[left, right]| left && right).collect();
            order += 1;
        }
        best
    }

    /// Returns the first run of `2^order` clear bits that starts at a multiple of `2^order` in a
    /// range.
    pub fn next_clear_aligned(&self, range: Range<u32>, order: u32) -> Option<u32> {
        let len = 1u32.checked_shl(order)?;
        let mut at = range.start.checked_next_multiple_of(len)?;
        while at < range.end {
            let end = at.checked_add(len).filter(|&end| end <= self.bits)?;
            match self.next_set(at..end) {
                None => return Some(at),
                // The run cannot start before the next clear bit.
                Some(set) => {
                    at = self.next_clear(set..self.bits)?.checked_next_multiple_of(len)?;
                }
            }
        }
        None
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
