//! The command line of Lanefs.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod copy;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run(std::env::args_os().collect())
}
