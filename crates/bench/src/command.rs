//! The command `lanefs bench`: its arguments, its run and its files. The caller prints.

mod arguments;
mod run;
mod task;
#[cfg(test)]
mod tests;

pub use arguments::Arguments;
pub use run::Console;

use crate::command::run::Interruption;
use crate::command::task::Output;
use crate::machine::Machine;
use crate::record::{Ending, Record};
use run::{Run, failure};
use std::ffi::OsString;
use std::path::PathBuf;
use task::Task;

/// Runs `lanefs bench`, and returns the exit code if it is not that of the failures that `console`
/// was told: after a signal, and for a usage error.
pub fn run(arguments: &Arguments, console: &dyn Console) -> Option<u8> {
    let task = match Task::of(arguments) {
        Ok(task) => task,
        Err(why) => return Some(refuse(&why)),
    };
    match begin(arguments, &task, console) {
        Ok(run) => run.measure(&task),
        Err(failure) => {
            console.fail(&failure);
            None
        }
    }
}

/// Prints a usage error in the form that clap uses, and returns its exit code.
fn refuse(why: &str) -> u8 {
    let error = clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, format!("{why}\n"));
    // Standard error may be closed; the exit code still reports the failure.
    let _ = error.print();
    2
}

/// Prepares a run, and makes all checks that do not need the targets.
fn begin<'a>(
    arguments: &'a Arguments,
    task: &Task,
    console: &'a dyn Console,
) -> Result<Run<'a>, String> {
    let program = match arguments.peers || matches!(task, Task::Efficiency(_)) {
        true => Some(enter_private_mounts(arguments)?),
        false => None,
    };
    let interruption = Interruption::watch().map_err(|error| format!("signals: {error}"))?;
    let output = Output::open(arguments)?;
    Ok(Run { arguments, console, program, interruption, output })
}

impl Run<'_> {
    /// Runs the measurements, and prints and saves the results. Returns the exit code if a signal
    /// interrupted the run.
    fn measure(self, task: &Task) -> Option<u8> {
        let before = Machine::now();
        let measured = match task {
            Task::Workloads(workloads) => self.workloads(workloads, &before),
            Task::Seeds(seeds, arrays) => self.seeds(seeds, *arrays, &before),
            Task::Efficiency(workloads) => self.efficiency(workloads, &before),
        };
        let after = Machine::now();
        let Run { console, interruption, output, .. } = self;
        let chapters = match measured {
            Ok(chapters) => chapters,
            // If a signal interrupted the set-up of the targets, that is not a failure.
            Err(_) if interruption.came() => Vec::new(),
            Err(failure) => {
                console.fail(&failure);
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
        console.print(&last);
        if !chapters.is_empty() {
            let record = Record { command: command(), before, after, ending, chapters };
            for failure in output.save(&record) {
                console.fail(&failure);
            }
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
fn enter_private_mounts(arguments: &Arguments) -> Result<PathBuf, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("the path of this program: {error}"))?;
    if arguments.private_mounts {
        return Ok(program);
    }
    let words = std::env::args_os().skip(1).chain([OsString::from(PRIVATE_MOUNTS)]);
    Err(failure(crate::peers::enter_private_mounts(&program, words)))
}
