//! The findings of a check, and its verdict.

use crate::fault::Fault;
use crate::harm::Harm;
use crate::place::Place;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_lanes::{Mutex, Rank};
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
    /// Returns the harm of the fault.
    pub fn harm(&self) -> Harm {
        self.fault.harm()
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

/// Collects the findings of several threads.
pub(crate) struct Collector {
    findings: Mutex<Vec<Finding>>,
    unchecked: Mutex<Vec<String>>,
    left_out: AtomicU64,
    most: usize,
}

impl Collector {
    pub(crate) fn new(most: usize) -> Collector {
        Collector {
            findings: Mutex::new(Rank::LaneList, Vec::new()),
            unchecked: Mutex::new(Rank::LaneList, Vec::new()),
            left_out: AtomicU64::new(0),
            most,
        }
    }

    pub(crate) fn add(&self, place: Place, fault: Fault) {
        let mut findings = self.findings.lock();
        if findings.len() < self.most {
            findings.push(Finding { place, fault });
        } else if fault.harm() != Harm::Note {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of findings so far.
    pub(crate) fn len(&self) -> usize {
        self.findings.lock().len()
    }

    /// Keeps the first `kept` findings. From the later findings, removes those that report doubly
    /// claimed blocks. Returns whether any were removed.
    pub(crate) fn forget_doubled(&self, kept: usize) -> bool {
        let mut findings = self.findings.lock();
        let all = findings.len();
        let later = findings.split_off(kept.min(all));
        let doubled = |finding: &Finding| matches!(finding.fault, Fault::DoublyClaimed { .. });
        findings.extend(later.into_iter().filter(|finding| !doubled(finding)));
        findings.len() < all
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
        sorted(self.findings.lock().clone())
    }

    pub(crate) fn into_report(self, totals: Totals) -> Report {
        let findings = sorted(std::mem::take(&mut *self.findings.lock()));
        let mut unchecked = std::mem::take(&mut *self.unchecked.lock());
        unchecked.sort();
        Report { findings, left_out: self.left_out.load(Ordering::Relaxed), unchecked, totals }
    }
}

/// Sorts findings by place. Findings at the same place stay in the order in which they were found.
fn sorted(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|finding| finding.place);
    findings
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
