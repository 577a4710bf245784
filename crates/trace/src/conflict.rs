//! Lines that one operation writes and another touches.

use crate::footprint::{Footprint, Line, Touch};

/// A line that two runs touch, and that at least one of them writes.
#[derive(Debug)]
pub struct Conflict<'a> {
    /// The line.
    pub line: Line,
    /// The accesses of the first run.
    pub first: &'a Touch,
    /// The accesses of the second run.
    pub second: &'a Touch,
}

/// Returns all lines that `first` writes and `second` touches, or the reverse.
pub fn conflicts<'a>(first: &'a Footprint, second: &'a Footprint) -> Vec<Conflict<'a>> {
    let (few, many) = match first.lines().len() <= second.lines().len() {
        true => (first, second),
        false => (second, first),
    };
    few.lines()
        .keys()
        .filter(|line| many.lines().contains_key(line))
        .filter_map(|line| {
            let (first, second) = (first.lines().get(line)?, second.lines().get(line)?);
            let shared = first.is_written() || second.is_written();
            shared.then_some(Conflict { line: *line, first, second })
        })
        .collect()
}
