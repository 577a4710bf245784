//! The progress line of a long copy.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Copies shorter than this print no progress line.
const PATIENCE: Duration = Duration::from_secs(1);

const COPIED: &str = "{spinner} {bytes} copied, {binary_bytes_per_sec} {msg}";
const WITHOUT_TOTAL: &str = "{spinner} {bytes} read, {binary_bytes_per_sec}";
const WITH_TOTAL: &str =
    "[{bar:30}] {percent}% of {total_bytes}, {binary_bytes_per_sec}, {eta} left";

/// Returns `bar` with this template. A bar on standard error is shown only on a terminal.
pub fn with_template(bar: ProgressBar, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// The number of bytes copied or read; shown only on a terminal, and only during long copies.
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
        let bar = with_template(bar, COPIED);
        let terminal = std::io::stderr().is_terminal();
        Progress { started: Instant::now(), bar, shown: AtomicBool::new(false), terminal }
    }

    /// Returns whether standard error is a terminal.
    pub fn is_on_terminal(&self) -> bool {
        self.terminal
    }

    /// Shows that `done` of `total` bytes have been read. Also shows the time left if the total is
    /// known.
    pub fn reach(&self, done: u64, total: Option<u64>) {
        if self.bar.position() == 0 || self.bar.length() != total {
            match total {
                Some(total) => self.bar.set_length(total),
                None => self.bar.unset_length(),
            }
            let template = if total.is_some() { WITH_TOTAL } else { WITHOUT_TOTAL };
            with_template(self.bar.clone(), template);
        }
        self.bar.set_position(total.map_or(done, |total| done.min(total)));
        self.show();
    }

    /// Adds copied bytes.
    pub fn copied_bytes(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.show();
    }

    /// Shows the progress, from the time on after which it is shown.
    pub fn show(&self) {
        if self.terminal
            && !self.shown.load(Ordering::Relaxed)
            && self.started.elapsed() > PATIENCE
            && !self.shown.swap(true, Ordering::Relaxed)
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Prints a line, then prints the progress line again.
    pub fn say(&self, line: &str) -> io::Result<()> {
        self.bar.suspend(|| writeln!(io::stdout(), "{}", crate::cli::printable(line)))
    }

    /// Erases the progress line when everything is copied.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}
