//! The results of measurements.

use crate::cpu::Cpu;
use crate::latency::Latencies;
use crate::statistics::Summary;
use lanefs_lanes::{Contention, Rank};

/// The results of one workload with one number of threads, for all targets.
#[derive(Debug)]
pub struct Measured {
    /// The name of the workload.
    pub workload: &'static str,
    /// The unit of the workload's rate.
    pub unit: &'static str,
    /// The number of threads.
    pub threads: u32,
    /// The name and the outcome of each target, in the order of the targets.
    pub outcomes: Vec<(String, Outcome)>,
}

/// The outcome of a workload on a target.
#[derive(Debug)]
pub enum Outcome {
    /// The workload ran.
    Ran(Box<Figures>),
    /// The workload failed, for this reason.
    Failed(String),
    /// The workload cannot run on this target.
    NotThere,
    /// The run was stopped before the first complete slice.
    Interrupted,
}

/// The figures of a workload on a target.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Operations per second, slice by slice.
    pub rates: Vec<f64>,
    /// Number of operations in all slices.
    pub operations: u64,
    /// CPU time in all slices, if the host reports it.
    pub cpu: Option<Cpu>,
    /// Latencies of a sample of the operations.
    pub latencies: Latencies,
    /// The largest amount of anonymous memory that this process had after any slice, in bytes. It
    /// includes the caches, but not a device in memory.
    pub memory: Option<u64>,
    /// The waits for Lanefs's locks in this process during all slices, one entry for each lock
    /// rank.
    pub waits: Vec<Contention>,
    /// Averages per operation of counted events, such as writes to an array's members.
    pub counts: Vec<Count>,
}

/// A figure with its name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// The name of the figure, such as `data_writes`.
    pub name: &'static str,
    /// The value.
    pub value: f64,
}

impl Figures {
    /// Returns the CPU time of one operation.
    pub fn cpu_per_op(&self) -> Option<Cpu> {
        self.cpu?.per(self.operations)
    }

    /// Updates the averages per operation with one slice of `operations` operations. `before` and
    /// `after` are the counters of the layers below the file system, read before and after the
    /// slice.
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

    /// Adds the waits of a slice, which are the differences between `after` and `before`.
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
    /// Returns the figures, if the workload ran.
    pub fn figures(&self) -> Option<&Figures> {
        match self {
            Outcome::Ran(figures) => Some(figures),
            Outcome::Failed(_) | Outcome::NotThere | Outcome::Interrupted => None,
        }
    }

    /// Returns the operations per second.
    pub fn rate(&self) -> Option<Summary> {
        Summary::of(self.rates().iter().copied())
    }

    /// Returns this outcome's rate divided by the rate of `first`, slice by slice.
    pub fn ratio_to(&self, first: &Outcome) -> Option<Summary> {
        Summary::of_ratios(self.rates(), first.rates())
    }

    /// Returns the rate of each slice; empty if the workload did not run.
    pub fn rates(&self) -> &[f64] {
        self.figures().map_or(&[], |figures| &figures.rates)
    }
}
