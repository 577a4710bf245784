//! The command line of Lanefs.

mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run(std::env::args_os().collect())
}
