//! The progress of long work, on a terminal.

use crate::copy::with_template;
use indicatif::ProgressBar;
use lanefs_raid5::Progress;
use std::ops::ControlFlow;

/// A progress bar with the estimated time left. Shown only on a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates the bar for work of this name.
    pub fn new(what: &'static str) -> Bar {
        let bar = ProgressBar::no_length().with_message(what);
        let template = "{msg} [{bar:30}] {percent}%, {binary_bytes_per_sec}, {eta} left";
        Bar(with_template(bar, template))
    }

    /// Creates a bar that is not shown.
    pub fn hidden(_: &'static str) -> Bar {
        Bar(ProgressBar::hidden())
    }

    /// Prints the bar.
    pub fn show(&self, progress: Progress) {
        self.0.set_length(progress.total);
        self.0.set_position(progress.done);
    }

    /// Prints the bar, and lets the work continue.
    pub fn go_on(&self, progress: Progress) -> ControlFlow<()> {
        self.show(progress);
        ControlFlow::Continue(())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
