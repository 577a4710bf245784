//! The progress of long work, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lanefs::raid5::Progress;
use std::io::IsTerminal;
use std::ops::ControlFlow;

/// A progress bar with the estimated time left. Shown only on a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates the bar for work of this name.
    pub fn new(what: &'static str) -> Bar {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target).with_message(what);
        let template = "{msg} [{bar:30}] {percent}%, {binary_bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Bar(bar)
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
