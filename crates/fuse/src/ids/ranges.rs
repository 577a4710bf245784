//! Ranges of ids that are mapped one to one.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The ids that can be mapped are below this number. The largest 32-bit number means "no id" to the
/// kernel. The second largest replaces an unmapped id in an access control list.
const END: u32 = u32::MAX - 1;

/// A range of `count` ids. The host's ids from `shown` on correspond, in order, to the image's ids
/// from `stored` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    shown: u32,
    stored: u32,
    count: u32,
}

/// Why ranges are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum RangeError {
    #[error("three numbers SHOWN:STORED:COUNT")]
    Syntax,
    #[error("at least one id, and none above 4294967293")]
    Extent,
    #[error("ranges that do not overlap")]
    Overlap,
}

impl Range {
    fn new(shown: u32, stored: u32, count: u32) -> Result<Range, RangeError> {
        let fits = |start: u32| start.checked_add(count).is_some_and(|end| end <= END);
        if count == 0 || !fits(shown) || !fits(stored) {
            return Err(RangeError::Extent);
        }
        Ok(Range { shown, stored, count })
    }

    /// Returns the first shown id, the first stored id, and the number of ids.
    pub(crate) fn parts(&self) -> (u32, u32, u32) {
        (self.shown, self.stored, self.count)
    }

    fn overlaps(&self, other: &Range) -> bool {
        let meet =
            |a: u32, b: u32| a < b.saturating_add(other.count) && b < a.saturating_add(self.count);
        meet(self.shown, other.shown) || meet(self.stored, other.stored)
    }
}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Range, RangeError> {
        let numbers: Vec<u32> = text
            .split(':')
            .map(|word| word.parse().map_err(|_| RangeError::Syntax))
            .collect::<Result<_, _>>()?;
        match numbers[..] {
            [shown, stored, count] => Range::new(shown, stored, count),
            _ => Err(RangeError::Syntax),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.shown, self.stored, self.count)
    }
}

/// Returns the id that has the same distance from `to` as `id` has from `from`.
fn moved(id: u32, from: u32, to: u32, count: u32) -> Option<u32> {
    let after = id.checked_sub(from).filter(|&after| after < count)?;
    to.checked_add(after)
}

/// Ranges that overlap neither on the host nor in the image. They are a bijection between the host
/// ids and the image ids that they cover.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range>);

impl Ranges {
    pub(crate) fn add(&mut self, range: Range) -> Result<(), RangeError> {
        if self.0.iter().any(|other| other.overlaps(&range)) {
            return Err(RangeError::Overlap);
        }
        self.0.push(range);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range> {
        self.0.iter()
    }

    /// Returns the id that the host sees for `stored`.
    pub(crate) fn shown(&self, stored: u32) -> Option<u32> {
        self.0.iter().find_map(|r| moved(stored, r.stored, r.shown, r.count))
    }

    /// Returns the image's id for the host's id `shown`.
    pub(crate) fn stored(&self, shown: u32) -> Option<u32> {
        self.0.iter().find_map(|r| moved(shown, r.shown, r.stored, r.count))
    }
}

#[cfg(test)]
mod tests;
