//! A run in progress, and the steps that are the same in all tasks.

use super::arguments::Arguments;
use super::interruption::Interruption;
use super::output::Output;
use super::progress::Progress;
use crate::cli::{Failure, Report, plain};
use lanefs_bench::{Measured, Plan, Workload};
use std::io::{self, Write};
use std::path::PathBuf;

pub(super) struct Run<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) report: &'a Report,
    /// The path of this program, if it runs in a private mount namespace.
    pub(super) program: Option<PathBuf>,
    pub(super) interruption: Interruption,
    pub(super) output: Output,
}

impl Run<'_> {
    /// Prints one result and advances the progress line.
    pub(super) fn show(&self, progress: &mut Progress, measured: &Measured, text: &str) {
        progress.clear();
        self.report.printed(print(text));
        for (name, outcome) in &measured.outcomes {
            if let lanefs_bench::Outcome::Failed(why) = outcome {
                self.report
                    .fail(Failure::new(format!("{} on {name}", measured.workload), plain(why)));
            }
        }
        progress.next();
    }

    pub(super) fn plan(&self, workloads: Vec<Workload>, threads: &[u32]) -> Plan {
        let arguments = self.arguments;
        Plan {
            threads: arguments.threads(threads),
            slices: arguments.slices,
            slice: arguments.slice(),
            scale: arguments.scale(&workloads),
            stop: self.interruption.stop(),
            workloads,
        }
    }
}

pub(super) fn failure(error: lanefs_bench::Error) -> Failure {
    Failure::new("cannot measure", plain(&error.to_string()))
}

pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
