//! A model of a coherent machine with one processor for each thread, and caches of unlimited size.

use crate::footprint::{Footprint, Line};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Counts the lines that move between processors while the processors run one operation after
/// another.
///
/// A read moves a line if another processor has written the line since this processor last used it:
/// each reader counts, not only the first. A write moves or invalidates a line if another processor
/// has the line. The first access to a line does not count, since it occurs only once.
#[derive(Debug, Default)]
pub struct Bus {
    lines: HashMap<Line, Copies>,
}

/// The processors that have a line.
#[derive(Debug, Default)]
struct Copies {
    holders: HashSet<usize>,
    /// Whether any processor has written the line.
    written: bool,
}

/// The moved lines, and how often each moved.
#[derive(Debug, Clone, Default)]
pub struct Transfers {
    /// How often each line moved.
    pub lines: BTreeMap<Line, u64>,
}

impl Transfers {
    /// Returns the number of all moves.
    pub fn total(&self) -> u64 {
        self.lines.values().sum()
    }

    /// Returns how often the line with the most moves has moved.
    pub fn hottest(&self) -> u64 {
        self.lines.values().copied().max().unwrap_or(0)
    }
}

impl Bus {
    /// Creates a machine with empty caches.
    pub fn new() -> Bus {
        Bus::default()
    }

    /// Runs an operation with this footprint on processor `who`; adds the moved lines to
    /// `transfers`.
    pub fn run(&mut self, who: usize, footprint: &Footprint, transfers: &mut Transfers) {
        for line in self.moves(who, footprint) {
            *transfers.lines.entry(line).or_default() += 1;
        }
    }

    /// Runs an operation with this footprint on processor `who`; returns the moved lines.
    pub fn moves(&mut self, who: usize, footprint: &Footprint) -> Vec<Line> {
        let mut moved = Vec::new();
        for (line, touch) in footprint.lines() {
            let copies = self.lines.entry(*line).or_default();
            let has = copies.holders.contains(&who);
            let alone = copies.holders.len() == usize::from(has);
            let moves = match touch.is_written() {
                true => !alone,
                false => !has && copies.written,
            };
            if moves {
                moved.push(*line);
            }
            if touch.is_written() {
                copies.holders.clear();
                copies.written = true;
            }
            copies.holders.insert(who);
        }
        moved
    }
}
