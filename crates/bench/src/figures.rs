//! What was measured.

use crate::cpu::Cpu;
use crate::latency::Latencies;
use crate::statistics::Summary;
use lanefs_lanes::{Contention, Rank};

/// What one workload gave with one number of threads: an outcome for each target.
#[derive(Debug)]
pub struct Measured {
    /// The workload by its name.
    pub workload: &'static str,
    /// What a rate of it is in.
    pub unit: &'static str,
    /// Threads.
    pub threads: u32,
    /// In the order of the targets: name, and what became of it.
    pub outcomes: Vec<(String, Outcome)>,
}

/// What became of a workload on a target.
#[derive(Debug)]
pub enum Outcome {
    /// It ran.
    Ran(Box<Figures>),
    /// It failed; why.
    Failed(String),
    /// It cannot be run there.
    NotThere,
    /// The run ended before its first whole slice.
    Interrupted,
}

/// What was measured of a workload on a target.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Operations per second, slice by slice.
    pub rates: Vec<f64>,
    /// In all slices.
    pub operations: u64,
    /// CPU time in all slices, if the host tells.
    pub cpu: Option<Cpu>,
    /// Of a sample of the operations.
    pub latencies: Latencies,
    /// The most memory of this process's own after a slice, in bytes: caches, and not the device.
    pub memory: Option<u64>,
    /// Waits for Lanefs's locks in this process, in all slices, of the ranks that had any.
    pub waits: Vec<Contention>,
    /// What else is told of a workload.
    pub counts: Vec<Count>,
}

/// A figure with its name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// What it is, and of what: `data_writes`.
    pub name: &'static str,
    /// How many.
    pub value: f64,
}

impl Figures {
    /// CPU time of one operation.
    pub fn cpu_per_op(&self) -> Option<Cpu> {
        self.cpu?.per(self.operations)
    }

    /// Adds what was counted below in a slice of `operations`, after those of the slices before.
    pub(crate) fn add_counts(
        &mut self,
        before: &[(&'static str, u64)],
        after: &[(&'static str, u64)],
        operations: u64,
    ) {
        let slices = self.operations + operations;
        for ((name, before), (_, after)) in before.iter().zip(after) {
            let more = after.saturating_sub(*before) as f64;
            let at = match self.counts.iter().position(|count| count.name == *name) {
                Some(at) => at,
                None if more == 0.0 => continue,
                None => {
                    self.counts.push(Count { name, value: 0.0 });
                    self.counts.len() - 1
                }
            };
            let count = &mut self.counts[at];
            count.value = (count.value * self.operations as f64 + more) / slices.max(1) as f64;
        }
    }

    /// Adds the waits of a slice.
    pub(crate) fn add_waits(&mut self, before: &[Contention], after: &[Contention]) {
        for (before, after) in before.iter().zip(after) {
            let (waits, nanos) = (after.waits - before.waits, after.nanos - before.nanos);
            match self.waits.iter_mut().find(|sum| sum.rank == after.rank) {
                Some(sum) => (sum.waits, sum.nanos) = (sum.waits + waits, sum.nanos + nanos),
                None if waits > 0 => self.waits.push(Contention { waits, nanos, ..*after }),
                None => {}
            }
        }
        self.waits.sort_by_key(|of| Rank::ALL.iter().position(|rank| *rank == of.rank));
    }
}

impl Outcome {
    /// The figures, if it ran.
    pub fn figures(&self) -> Option<&Figures> {
        match self {
            Outcome::Ran(figures) => Some(figures),
            Outcome::Failed(_) | Outcome::NotThere | Outcome::Interrupted => None,
        }
    }

    /// Operations per second.
    pub fn rate(&self) -> Option<Summary> {
        Summary::of(self.rates().iter().copied())
    }

    /// How many times as fast as `first`, slice by slice.
    pub fn ratio_to(&self, first: &Outcome) -> Option<Summary> {
        Summary::of_ratios(self.rates(), first.rates())
    }

    /// Slice by slice; empty if it did not run.
    pub fn rates(&self) -> &[f64] {
        self.figures().map_or(&[], |figures| &figures.rates)
    }
}
