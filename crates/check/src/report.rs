//! The findings of a check, and its verdict.

use crate::fault::Fault;
use crate::harm::Harm;
use crate::place::Place;
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::Ino;
use std::collections::BTreeMap;
use std::fmt;

/// A fault and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The object with the fault.
    pub place: Place,
    /// The fault.
    pub fault: Fault,
}

impl Finding {
    /// Returns the harm of the fault. Most faults of the resize inode prevent only growth.
    pub fn harm(&self) -> Harm {
        match (self.place.ino(), self.fault.harm()) {
            (_, harm @ (Harm::Overwritten | Harm::WrongCounts | Harm::Note)) => harm,
            (Some(Ino::RESIZE), _) => Harm::NoGrowth,
            (_, harm) => harm,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.place, self.fault, self.harm())
    }
}

/// The objects that a check has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Inodes in use, reserved ones included.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Blocks in use; with `bigalloc`, all blocks of the clusters in use.
    pub blocks: u64,
    /// Entries of directories.
    pub entries: u64,
}

/// The result of a check.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The findings, sorted by place. `Options::findings` limits their number.
    pub findings: Vec<Finding>,
    /// The number of faults that were not kept, because there were too many findings.
    pub left_out: u64,
    /// The names of the parts that the checker cannot check, for example features that it does not
    /// know.
    pub unchecked: Vec<String>,
    /// Counts of the checked objects.
    pub totals: Totals,
}

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No fault was found, and everything was checked.
    Clean,
    /// Faults were found.
    Damaged,
    /// No fault was found, but parts were not checked.
    Unchecked,
}

impl Report {
    /// Returns the verdict. Notes do not count as faults.
    pub fn verdict(&self) -> Verdict {
        let damaged = self.findings.iter().any(|finding| finding.harm() != Harm::Note);
        match (damaged || self.left_out > 0, self.unchecked.is_empty()) {
            (true, _) => Verdict::Damaged,
            (false, true) => Verdict::Clean,
            (false, false) => Verdict::Unchecked,
        }
    }
}

/// Collects the findings of several threads. If there are too many, keeps those with the lowest
/// places, so that the choice does not depend on the order in which the threads find them. Wrong
/// bitmaps and counts, which often follow from other faults, are left out first.
pub(crate) struct Collector {
    found: Mutex<Found>,
    unchecked: Mutex<Vec<String>>,
    most: usize,
}

#[derive(Default)]
struct Found {
    kept: BTreeMap<Key, Fault>,
    /// The number of the next fault.
    next: u64,
    left_out: u64,
}

/// The order in which findings are kept: whether the finding concerns a bitmap or a count (such
/// findings come last), its place, and its number.
type Key = (bool, Place, u64);

impl Collector {
    pub(crate) fn new(most: usize) -> Collector {
        Collector {
            found: Mutex::new(Rank::LaneList, Found::default()),
            unchecked: Mutex::new(Rank::LaneList, Vec::new()),
            most,
        }
    }

    pub(crate) fn add(&self, place: Place, fault: Fault) {
        let found = &mut *self.found.lock();
        let is_count = matches!(place, Place::BlockBitmap { .. } | Place::InodeBitmap { .. })
            || matches!(fault, Fault::Count { .. });
        found.kept.insert((is_count, place, found.next), fault);
        found.next += 1;
        if found.kept.len() > self.most
            && let Some((_, last)) = found.kept.pop_last()
        {
            found.left_out += u64::from(last.harm() != Harm::Note);
        }
    }

    /// Adds the fault to the findings if `result` is an error.
    pub(crate) fn check(&self, place: Place, result: Result<(), Fault>) {
        if let Err(fault) = result {
            self.add(place, fault);
        }
    }

    /// Records the name of a part that the checker cannot check.
    pub(crate) fn unchecked(&self, what: impl Into<String>) {
        let (mut names, what) = (self.unchecked.lock(), what.into());
        if !names.contains(&what) {
            names.push(what);
        }
    }

    /// Returns the findings so far, sorted by place.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        sorted(self.found.lock().kept.clone())
    }

    pub(crate) fn into_report(self, totals: Totals) -> Report {
        let Found { kept, left_out, .. } = std::mem::take(&mut *self.found.lock());
        let findings = sorted(kept);
        let mut unchecked = std::mem::take(&mut *self.unchecked.lock());
        unchecked.sort();
        Report { findings, left_out, unchecked, totals }
    }
}

/// Sorts findings by place. Findings at the same place stay in the order in which they were found.
fn sorted(kept: BTreeMap<Key, Fault>) -> Vec<Finding> {
    let mut found: Vec<(Key, Fault)> = kept.into_iter().collect();
    found.sort_by_key(|((_, place, number), _)| (*place, *number));
    found.into_iter().map(|((_, place, _), fault)| Finding { place, fault }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_ondisk::Ino;

    #[test]
    fn a_finding_names_its_inode_once_before_the_fault() {
        let place = Place::Inode { ino: Ino(7) };
        let fault = Fault::Special { ino: 7, what: "not a resize inode" };
        let text = Finding { place, fault }.to_string();
        assert!(text.starts_with("inode 7: not a resize inode ("), "{text}");
        let text = Finding { place, fault: Fault::Orphan { ino: 7 } }.to_string();
        assert!(text.starts_with("inode 7: an orphan that is not valid"), "{text}");
    }
}
