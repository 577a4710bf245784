//! `lanefs bench`

mod arguments;
mod run;
mod task;
#[cfg(test)]
mod tests;

pub use arguments::Arguments;

use crate::cli::{Failure, Report};
use crate::commands::bench::run::Interruption;
use crate::commands::bench::task::Output;
use lanefs_bench::{Ending, Machine, Record};
use run::{Run, failure, print};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use task::Task;

/// Runs `lanefs bench`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let task = match Task::of(arguments) {
        Ok(task) => task,
        Err(why) => return refuse(&why),
    };
    let report = Report::new("bench");
    match begin(arguments, &task, &report) {
        Err(failure) => {
            report.fail(failure);
            report.exit()
        }
        Ok(run) => {
            let code = run.measure(&task);
            code.unwrap_or_else(|| report.exit())
        }
    }
}

/// Prints a usage error in the form that clap uses; the exit code is 2.
fn refuse(why: &str) -> ExitCode {
    let error = clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, format!("{why}\n"));
    // Standard error may be closed; the exit code still reports the failure.
    let _ = error.print();
    ExitCode::from(2)
}

/// Prepares a run, and makes all checks that do not need the targets.
fn begin<'a>(
    arguments: &'a Arguments,
    task: &Task,
    report: &'a Report,
) -> Result<Run<'a>, Failure> {
    let program = match arguments.peers || matches!(task, Task::Efficiency(_)) {
        true => Some(enter_private_mounts(arguments)?),
        false => None,
    };
    let interruption = Interruption::watch().map_err(|error| Failure::host("signals", &error))?;
    let output = Output::open(arguments)?;
    Ok(Run { arguments, report, program, interruption, output })
}

impl Run<'_> {
    /// Runs the measurements, and prints and saves the results. Returns the exit code if a signal
    /// interrupted the run.
    fn measure(self, task: &Task) -> Option<ExitCode> {
        let before = Machine::now();
        let measured = match task {
            Task::Workloads(workloads) => self.workloads(workloads, &before),
            Task::Seeds(seeds, arrays) => self.seeds(seeds, *arrays, &before),
            Task::Efficiency(workloads) => self.efficiency(workloads, &before),
        };
        let after = Machine::now();
        let Run { report, interruption, output, .. } = self;
        let chapters = match measured {
            Ok(chapters) => chapters,
            // If a signal interrupted the set-up of the targets, that is not a failure.
            Err(_) if interruption.came() => Vec::new(),
            Err(failure) => {
                report.fail(failure);
                return None;
            }
        };
        let ending = match interruption.came() {
            true => Ending::Interrupted,
            false => Ending::Complete,
        };
        let last = match ending {
            Ending::Complete => format!("at the end: {after}\n"),
            Ending::Interrupted => {
                format!("interrupted, some workloads are not measured: {after}\n")
            }
        };
        report.printed(print(&last));
        if !chapters.is_empty() {
            let record = Record { command: command(), before, after, ending, chapters };
            report.check(output.save(&record));
        }
        interruption.exit()
    }
}

/// Returns the command line of this run.
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.filter(|word| word != PRIVATE_MOUNTS).collect();
    format!("lanefs {}", words.join(" "))
}

/// The option with which this program calls itself in a private mount namespace.
const PRIVATE_MOUNTS: &str = "--private-mounts";

/// Returns the path of this program if the process already has a private mount namespace. Otherwise
/// the process executes the same command again in a new private mount namespace.
fn enter_private_mounts(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::host("the path of this program", &error))?;
    if arguments.private_mounts {
        return Ok(program);
    }
    let words = std::env::args_os().skip(1).chain([OsString::from(PRIVATE_MOUNTS)]);
    Err(failure(lanefs_bench::enter_private_mounts(&program, words)))
}
