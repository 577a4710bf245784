//! The command line of Lanefs.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod copy;

use std::process::ExitCode;

/// Blocks on cache lines of their own, and no lists that threads share: `docs/scaling.md`.
#[global_allocator]
static HEAP: lanefs::LineHeap = lanefs::LineHeap;

fn main() -> ExitCode {
    // A panic has said what it is; the exit code is one of those that are documented.
    std::panic::catch_unwind(|| commands::run(std::env::args_os().collect()))
        .unwrap_or(ExitCode::FAILURE)
}
