//! The command line of Lanefs.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod completion;
mod copy;
mod walk;

use std::process::ExitCode;

/// Allocates heap blocks on separate cache lines, without free lists that threads share (see
/// `docs/scaling.md`).
#[global_allocator]
static HEAP: lanefs::LineHeap = lanefs::LineHeap;

fn main() -> ExitCode {
    cli::fail_on_closed_stdout();
    // A panic has printed its message already; the process still exits with a documented code.
    std::panic::catch_unwind(|| match completion::answer(commands::description) {
        true => ExitCode::SUCCESS,
        false => commands::run(std::env::args_os().collect()),
    })
    .unwrap_or(ExitCode::FAILURE)
}
