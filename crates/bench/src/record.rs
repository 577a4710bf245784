//! The record of a run: its command, machine and results.

use crate::figures::Measured;
use crate::machine::Machine;

/// A run.
#[derive(Debug)]
pub struct Record {
    /// The command line.
    pub command: String,
    /// The machine at the start of the run.
    pub before: Machine,
    /// The machine at the end of the run.
    pub after: Machine,
    /// How the run ended.
    pub ending: Ending,
    /// The results.
    pub chapters: Vec<Chapter>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All workloads were measured.
    Complete,
    /// A signal stopped the run early.
    Interrupted,
}

/// The results under one heading.
#[derive(Debug)]
pub struct Chapter {
    /// The heading.
    pub title: String,
    /// The results, one for each number of threads.
    pub measured: Vec<Measured>,
}

/// Groups results into chapters by workload, in the order in which they were measured.
pub fn chapters(all: Vec<Measured>) -> Vec<Chapter> {
    let mut chapters: Vec<Chapter> = Vec::new();
    for measured in all {
        match chapters.iter_mut().find(|chapter| chapter.title == measured.workload) {
            Some(chapter) => chapter.measured.push(measured),
            None => {
                chapters
                    .push(Chapter { title: measured.workload.into(), measured: vec![measured] });
            }
        }
    }
    chapters
}
