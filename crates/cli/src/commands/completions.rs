//! `lanefs completions`

use crate::cli::Report;
use crate::completion::{Shell, write_script};
use std::io;
use std::process::ExitCode;

/// Prints the script that completes lanefs in a shell, also paths inside images
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Packages and make install put the scripts where the shells look for them.

Exit codes: 0 success, 1 failure, 2 wrong usage.

Examples:
  lanefs completions bash > ~/.local/share/bash-completion/completions/lanefs
  lanefs completions zsh > ~/.zfunc/_lanefs     # a folder in $fpath
  lanefs completions fish > ~/.config/fish/completions/lanefs.fish")]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

/// Runs `lanefs completions`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("completions");
    report.printed(write_script(arguments.shell, &mut io::stdout().lock()));
    report.exit()
}
