//! The rows whose parity may be wrong, for example after a crash without a log, until they are
//! resynchronised.

use crate::layout::Geometry;
use crate::right_blocks::RightBlocks;
use crate::setup::Consistency;
use crate::unflushed::Unflushed;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lanefs_lanes::{Mutex, Padded, Rank};
use std::ops::Range;

/// The remaining work of a resync: rows from `next` on, in the regions that need a resync.
#[derive(Debug)]
pub(crate) struct Unsynced {
    next: Padded<AtomicU64>,
    rows: u64,
    /// The number of rows in a region, and for each region whether it needs a resync. `None` means
    /// that all rows need a resync.
    regions: Option<(u64, Box<[bool]>)>,
    /// `None` if all parity was right at the start.
    right: Option<RightBlocks>,
    torn: Torn,
    pub(crate) unflushed: Unflushed,
}

/// Ranges in which a write failed halfway, after which the array's writes stopped.
#[derive(Debug)]
struct Torn {
    any: AtomicBool,
    /// The row, and the offsets of the range's first byte and of the byte after its last.
    ranges: Mutex<Vec<(u64, u64, u64)>>,
}

impl Torn {
    fn new() -> Torn {
        Torn { any: AtomicBool::new(false), ranges: Mutex::new(Rank::Bucket, Vec::new()) }
    }

    fn contains(&self, row: u64, from: u64, to: u64) -> bool {
        let overlaps = |range: &(u64, u64, u64)| range.0 == row && range.1 < to && from < range.2;
        self.any.load(Ordering::Acquire) && self.ranges.lock().iter().any(overlaps)
    }
}

impl Unsynced {
    pub(crate) fn new(shape: &Geometry, consistency: &Consistency, from: u64) -> Unsynced {
        let rows = shape.rows();
        let right = |next| (next < rows).then(|| RightBlocks::new(shape));
        match consistency {
            // If all parity is right, the bits are ignored, because bits also stay set when a
            // degraded array is stopped cleanly.
            Consistency::Bitmap { chunk, bits } if from != u64::MAX => {
                let rows_of = (chunk / shape.chunk()).max(1);
                let region = |r: u64| {
                    let (first, last) = bits_of(shape, *chunk, r * rows_of, rows_of);
                    (first..=last).any(|bit| bit_is_set(bits, bit))
                };
                let count = rows.div_ceil(rows_of);
                let regions: Box<[bool]> = (0..count).map(region).collect();
                let next = if regions.contains(&true) { 0 } else { rows };
                Unsynced {
                    next: Padded(AtomicU64::new(next)),
                    rows,
                    regions: Some((rows_of, regions)),
                    right: right(next),
                    torn: Torn::new(),
                    unflushed: Unflushed::new(),
                }
            }
            _ => {
                let next = (from / shape.chunk()).min(rows);
                let next_row = Padded(AtomicU64::new(next));
                let (right, torn) = (right(next), Torn::new());
                let unflushed = Unflushed::new();
                Unsynced { next: next_row, rows, regions: None, right, torn, unflushed }
            }
        }
    }

    /// Returns whether any row still needs a resync.
    pub(crate) fn any(&self) -> bool {
        self.next.load(Ordering::Acquire) < self.rows
    }

    /// Returns whether the parity of `row` may be wrong in any block with bytes in this range of
    /// offsets.
    ///
    /// # Locking
    /// The caller holds these blocks.
    pub(crate) fn contains(&self, row: u64, from: u64, to: u64) -> bool {
        let is_right = |right: &RightBlocks| right.contain(row, from, to);
        self.torn.contains(row, from, to)
            || self.unflushed.is_lost(row)
            || self.waits(row) && !self.right.as_ref().is_some_and(is_right)
    }

    /// Records that a write failed halfway in this range. Parity is in doubt there until the next
    /// start.
    ///
    /// # Locking
    /// The caller holds the range exclusively.
    pub(crate) fn tear(&self, row: u64, from: u64, to: u64) {
        self.torn.ranges.lock().push((row, from, to));
        self.torn.any.store(true, Ordering::Release);
    }

    /// Records that right parity was written in the blocks with bytes in this range of offsets: it
    /// was computed without any old parity that may be wrong.
    ///
    /// # Locking
    /// The caller holds these blocks exclusively.
    pub(crate) fn written(&self, row: u64, from: u64, to: u64) {
        if let Some(right) = self.right.as_ref().filter(|_| self.waits(row)) {
            right.add(row, from, to);
        }
    }

    /// Returns whether `row` still needs a resync.
    fn waits(&self, row: u64) -> bool {
        self.next.load(Ordering::Acquire) <= row && self.needs(row)
    }

    fn needs(&self, row: u64) -> bool {
        match &self.regions {
            Some((rows, regions)) => regions.get((row / rows) as usize).copied().unwrap_or(false),
            None => row < self.rows,
        }
    }

    /// Returns the next row that needs resync, at or after `from`.
    pub(crate) fn next_from(&self, from: u64) -> Option<u64> {
        let from = from.max(self.next.load(Ordering::Acquire));
        self.waiting(from).next().map(|rows| rows.start)
    }

    /// Returns the rows from `from` on that need a resync, in runs. There may be billions of rows,
    /// too many to look at one by one.
    fn waiting(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        let (rows_of, count) = match &self.regions {
            Some((rows_of, regions)) => (*rows_of, regions.len() as u64),
            None => (self.rows.max(1), 1),
        };
        let rows = move |region: u64| {
            (region * rows_of).max(from)
                ..region.saturating_add(1).saturating_mul(rows_of).min(self.rows)
        };
        (from / rows_of..count).map(rows).filter(|rows| !rows.is_empty() && self.needs(rows.start))
    }

    /// Records that parity is right in all rows below `row`.
    ///
    /// # Locking
    /// The caller holds these rows, so that no writer relies on the corrected parity before the
    /// correction is written.
    pub(crate) fn advance(&self, row: u64) {
        self.next.fetch_max(row, Ordering::AcqRel);
        if let (Some(right), Some(done)) = (&self.right, row.checked_sub(1)) {
            right.forget(done);
        }
    }

    /// Returns the number of rows that need a resync.
    pub(crate) fn rows_left(&self) -> u64 {
        let runs = self.waiting(self.next.load(Ordering::Acquire));
        runs.map(|rows| rows.end - rows.start).sum()
    }
}

/// Returns the first and the last bit that stand for the `count` rows starting at `row`, in a
/// bitmap that has one bit for each `chunk` bytes of a member.
pub(crate) fn bits_of(shape: &Geometry, chunk: u64, row: u64, count: u64) -> (u64, u64) {
    let from = row * shape.chunk();
    let to = (row + count).min(shape.rows()) * shape.chunk();
    (from / chunk, to.saturating_sub(1) / chunk)
}

/// Returns whether `bit` is set in a bitmap that has its on-disk form. Bits after the end of the
/// bitmap count as set.
pub(crate) fn bit_is_set(bits: &[u8], bit: u64) -> bool {
    bits.get((bit / 8) as usize).is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::layout::Layout;

    fn shape() -> Geometry {
        Geometry::new(Layout::LeftSymmetric, 3, 4096, 4096 * 100).unwrap()
    }

    #[test]
    fn a_bitmap_says_which_rows_need_it() {
        let bits = vec![0b10, 0];
        let consistency = Consistency::Bitmap { chunk: 4096 * 16, bits };
        let unsynced = Unsynced::new(&shape(), &consistency, 0);
        assert_eq!(unsynced.rows_left(), 16);
        let contains = |row| unsynced.contains(row, 0, 4096);
        assert!(!contains(15) && contains(16) && contains(31));
        assert_eq!(unsynced.next_from(0), Some(16));
        unsynced.advance(20);
        assert!(!contains(19) && contains(20));
        assert_eq!(unsynced.next_from(32), None);
        unsynced.advance(100);
        assert!(!unsynced.any());
    }

    #[test]
    fn the_rows_of_an_array_of_16_tib_are_counted_by_region() {
        let shape = Geometry::new(Layout::LeftSymmetric, 3, 4096, 16 << 40).unwrap();
        let mut bits = vec![0; 32 << 10];
        (bits[0], bits[32_767]) = (1, 0x80);
        let unsynced = Unsynced::new(&shape, &Consistency::Bitmap { chunk: 64 << 20, bits }, 0);
        assert_eq!((shape.rows(), unsynced.rows_left()), (1 << 32, 2 << 14));
        assert_eq!(unsynced.next_from(1 << 14), Some((1 << 32) - (1 << 14)));
        unsynced.advance((1 << 32) - 1);
        assert_eq!((unsynced.rows_left(), unsynced.next_from(0)), (1, Some((1 << 32) - 1)));
    }

    #[test]
    fn small_bits_are_joined_to_rows() {
        let shape = Geometry::new(Layout::LeftSymmetric, 3, 16384, 16384 * 4).unwrap();
        let consistency = Consistency::Bitmap { chunk: 4096, bits: vec![0b0100_0000, 0] };
        let unsynced = Unsynced::new(&shape, &consistency, 0);
        assert_eq!((0..4).filter(|r| unsynced.contains(*r, 0, 4096)).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn without_a_bitmap_everything_from_the_checkpoint_on_needs_it() {
        let unsynced = Unsynced::new(&shape(), &Consistency::Resync, 4096 * 90 + 1);
        assert_eq!(unsynced.rows_left(), 10);
        let clean = Unsynced::new(&shape(), &Consistency::Resync, u64::MAX);
        assert!(!clean.any());
    }
}
