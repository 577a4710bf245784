//! What a long copy shows while it runs.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Copies that are done before that show nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Files and bytes copied; shown on a terminal only, and only if it takes long.
pub struct Progress {
    started: Instant,
    bar: ProgressBar,
    shown: AtomicBool,
    terminal: bool,
}

impl Progress {
    /// Nothing is copied yet.
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

    /// `bytes` more are copied.
    pub fn copied_bytes(&self, bytes: u64) {
        self.bar.inc(bytes);
        self.show();
    }

    /// One more file is complete.
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

    /// Prints a line without tearing what is shown.
    pub fn say(&self, line: &str) -> io::Result<()> {
        self.bar.suspend(|| writeln!(io::stdout(), "{}", crate::cli::printable(line)))
    }

    /// Everything is copied.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}
