//! How far a long run has come, on a terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::Instant;

/// A line that is overwritten; nothing where nobody looks.
pub struct Progress {
    steps: Vec<String>,
    done: usize,
    begun: Instant,
    shown: bool,
}

impl Progress {
    /// Begins to measure each workload with each count of threads.
    pub fn new(workloads: &[impl Display], threads: &[u32]) -> Progress {
        let steps = workloads.iter().flat_map(|workload| {
            threads.iter().map(move |count| format!("{workload}, threads: {count}"))
        });
        let shown = std::io::stderr().is_terminal();
        let progress = Progress { steps: steps.collect(), done: 0, begun: Instant::now(), shown };
        progress.show();
        progress
    }

    /// Makes room for a result.
    pub fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }

    /// One more is done.
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
        // Nothing depends on it.
        let _ = std::io::stderr().flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // A run that was interrupted has something left to do.
        self.clear();
    }
}
