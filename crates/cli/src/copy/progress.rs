//! The progress line of a long copy.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Shorter copies print no progress line.
const PATIENCE: Duration = Duration::from_secs(1);

/// The number of files and bytes copied; shown only on a terminal, and only during long copies.
pub struct Progress {
    started: Instant,
    bar: ProgressBar,
    shown: AtomicBool,
    terminal: bool,
}

impl Progress {
    /// Creates the progress of a copy that has not started.
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {bytes} copied, {binary_bytes_per_sec} {msg}")
        {
            bar.set_style(style);
        }
        let terminal = std::io::stderr().is_terminal();
        Progress { started: Instant::now(), bar, shown: AtomicBool::new(false), terminal }
    }

    /// Adds copied bytes.
    pub fn copied_bytes(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.show();
    }

    /// Adds a complete file.
    pub fn copied_file(&self) {
        self.show();
    }

    fn show(&self) {
        if self.terminal
            && !self.shown.load(Ordering::Relaxed)
            && self.started.elapsed() > PATIENCE
            && !self.shown.swap(true, Ordering::Relaxed)
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Prints a line, and the progress line again after it.
    pub fn say(&self, line: &str) -> io::Result<()> {
        self.bar.suspend(|| writeln!(io::stdout(), "{}", crate::cli::printable(line)))
    }

    /// Erases the line when everything is copied.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}
