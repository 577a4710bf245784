//! All that a run gave, and what it was.

use crate::figures::Measured;
use crate::machine::Machine;

/// A run.
#[derive(Debug)]
pub struct Record {
    /// What was typed.
    pub command: String,
    /// The machine when it began.
    pub before: Machine,
    /// The machine when it ended.
    pub after: Machine,
    /// How it ended.
    pub ending: Ending,
    /// What was measured.
    pub chapters: Vec<Chapter>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All was measured.
    Complete,
    /// Somebody asked for the end before.
    Interrupted,
}

/// Results that belong together, under one heading.
#[derive(Debug)]
pub struct Chapter {
    /// The heading.
    pub title: String,
    /// One for each count of threads.
    pub measured: Vec<Measured>,
}

/// Chapters by workload, in the order in which they were measured.
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
