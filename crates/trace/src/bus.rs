//! A coherent machine of many processors, one for each thread, with caches of unlimited size.

use crate::{Footprint, Line};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Counts the lines that move between processors while they run one operation after the other.
///
/// A read moves a line that another processor wrote since. A write moves or invalidates a line that
/// another processor has. A line that no processor had before does not count: caches are cold once.
#[derive(Debug, Default)]
pub struct Bus {
    lines: HashMap<Line, Copies>,
}

/// The processors that have a line.
#[derive(Debug, Default)]
struct Copies {
    holders: HashSet<usize>,
    /// Whether its only holder wrote it.
    written: bool,
}

/// Lines that moved, and how often.
#[derive(Debug, Clone, Default)]
pub struct Transfers {
    /// How often each line moved.
    pub lines: BTreeMap<Line, u64>,
}

impl Transfers {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.lines.values().sum()
    }

    /// Those of the line that moved most.
    pub fn hottest(&self) -> u64 {
        self.lines.values().copied().max().unwrap_or(0)
    }
}

impl Bus {
    /// All caches are empty.
    pub fn new() -> Bus {
        Bus::default()
    }

    /// Processor `who` executes a run with this footprint; adds the lines that move to `transfers`.
    pub fn run(&mut self, who: usize, footprint: &Footprint, transfers: &mut Transfers) {
        for (line, touch) in footprint.lines() {
            let copies = self.lines.entry(*line).or_default();
            let has = copies.holders.contains(&who);
            let alone = copies.holders.len() == usize::from(has);
            let moves = match touch.is_written() {
                true => !alone,
                false => !has && copies.written,
            };
            if moves {
                *transfers.lines.entry(*line).or_default() += 1;
            }
            if touch.is_written() {
                copies.holders.clear();
                copies.written = true;
            } else if !has {
                copies.written = false;
            }
            copies.holders.insert(who);
        }
    }
}
