//! Searches for runs of clear bits.

use lanefs_ondisk::bitmap::Bitmap;
use std::ops::Range;

/// The result of a search for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The first bit of a run of the wanted length.
    Fit(u32),
    /// The longest run, if it is too short; its length is 0 if all bits are set.
    Longest { start: u32, len: u32 },
}

/// Finds the first run of `want` clear bits that starts at `from` or later. If there is none, finds
/// the first run of `want` clear bits in the bitmap, or else the longest run.
pub(crate) fn find(bitmap: &Bitmap, from: u32, want: u32) -> Found {
    let mut longest = Found::Longest { start: 0, len: 0 };
    for part in [from..bitmap.bits(), 0..from] {
        let begins = bitmap.clear_runs(part.start..bitmap.bits());
        for run in begins.take_while(|run| run.start < part.end) {
            let found = run.end - run.start;
            if found >= want {
                return Found::Fit(run.start);
            }
            if let Found::Longest { len, .. } = longest
                && found > len
            {
                longest = Found::Longest { start: run.start, len: found };
            }
        }
    }
    longest
}

/// The bits of a group at which rows of the underlying RAID begin: every `width`-th bit from
/// `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Data blocks of a whole row; a value below 2 means no rows.
    pub width: u32,
    /// Blocks of the group before its first whole row.
    pub first: u32,
}

impl Rows {
    /// Returns the rows in a group that begins at `block`. Rows of `width` blocks follow one
    /// another from the first block of the device on.
    pub(crate) fn in_group(width: u32, block: u64) -> Rows {
        let behind = block.checked_rem(width.into()).unwrap_or(0) as u32;
        Rows { width, first: if behind == 0 { 0 } else { width - behind } }
    }

    /// Returns whether a run of `len` blocks should start where a row starts.
    pub(crate) fn suit(self, len: u32) -> bool {
        self.width > 1 && len >= self.width
    }

    /// Returns the first bit at `bit` or later where a row starts.
    fn at_or_behind(self, bit: u32) -> u32 {
        let behind = bit.saturating_sub(self.first);
        self.first.saturating_add(behind.div_ceil(self.width).saturating_mul(self.width))
    }
}

/// Searches like [`find`], but for a run of `want` clear bits that starts where a row starts.
/// Returns the run's first bit; `None` if there is no such run.
pub(crate) fn find_on_rows(bitmap: &Bitmap, from: u32, want: u32, rows: Rows) -> Option<u32> {
    for part in [from..bitmap.bits(), 0..from] {
        let begins = bitmap.clear_runs(part.start..bitmap.bits());
        for run in begins.take_while(|run| run.start < part.end) {
            let start = rows.at_or_behind(run.start);
            if start.checked_add(want).is_some_and(|end| end <= run.end) {
                return Some(start);
            }
        }
    }
    None
}

/// Counts the consecutive clear bits from `at` on, up to `most`.
pub(crate) fn clear_at(bitmap: &Bitmap, at: u32, most: u32) -> u32 {
    let end = at.saturating_add(most).min(bitmap.bits());
    bitmap.next_set(at..end).unwrap_or(end).saturating_sub(at)
}

/// Returns the run of clear bits around `at`; empty if the bit is set.
pub(crate) fn around(bitmap: &Bitmap, at: u32) -> Range<u32> {
    const STEP: u32 = u64::BITS;
    let end = at + clear_at(bitmap, at, u32::MAX - at);
    if end == at {
        return at..at;
    }
    let mut start = at;
    while start > 0 {
        let step = start.saturating_sub(1) / STEP * STEP;
        let Some(mut set) = bitmap.next_set(step..start) else {
            start = step;
            continue;
        };
        while let Some(later) = bitmap.next_set(set + 1..start) {
            set = later;
        }
        return set + 1..end;
    }
    0..end
}

#[cfg(test)]
mod tests;
