//! `lanefs bench`, which the crate `lanefs-bench` has.

pub use lanefs_bench::command::Arguments;

use crate::cli::{Report, complain, plain};
use lanefs_bench::command::Console;
use std::io::Write;
use std::process::ExitCode;

/// Runs `lanefs bench`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("bench");
    let code = lanefs_bench::command::run(arguments, &report);
    code.map_or_else(|| report.exit(), ExitCode::from)
}

impl Console for Report {
    fn print(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        self.printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    }

    fn tell(&self, text: &str) {
        complain(text);
    }

    fn fail(&self, failure: &str) {
        Report::fail(self, plain(failure));
    }
}
