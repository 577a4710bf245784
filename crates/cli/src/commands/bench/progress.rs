//! The progress of a long run, on a terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::Instant;

/// A line on standard error that each step overwrites. Prints nothing unless standard error is a
/// terminal.
pub struct Progress {
    steps: Vec<String>,
    done: usize,
    begun: Instant,
    shown: bool,
}

impl Progress {
    /// Starts at the first step. A step is one workload with one number of threads.
    pub fn new(workloads: &[impl Display], threads: &[u32]) -> Progress {
        let steps = workloads.iter().flat_map(|workload| {
            threads.iter().map(move |count| format!("{workload}, threads: {count}"))
        });
        let shown = std::io::stderr().is_terminal();
        let progress = Progress { steps: steps.collect(), done: 0, begun: Instant::now(), shown };
        progress.show();
        progress
    }

    /// Erases the line, so that a result can be printed.
    pub fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }

    /// Advances by one step.
    pub fn next(&mut self) {
        self.done += 1;
        self.show();
    }

    fn show(&self) {
        let Some(step) = self.steps.get(self.done) else { return };
        if !self.shown {
            return;
        }
        let (done, all) = (self.done, self.steps.len());
        let passed = self.begun.elapsed().as_secs();
        let left = match done {
            0 => String::new(),
            done => format!(", about {} s left", passed * (all - done) as u64 / done as u64),
        };
        eprint!("\r\x1b[K[{}/{all}] {step}{left}", done + 1);
        // Errors of the progress line are ignored.
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // Without this call, an interrupted run would leave its progress line on the terminal.
        self.clear();
    }
}
