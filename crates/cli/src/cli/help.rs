//! `--help`.

/// Defines `--help` without `-h`, for commands where `-h` has another meaning.
pub fn long_help() -> clap::Arg {
    clap::Arg::new("help").long("help").action(clap::ArgAction::Help).help("Print help")
}
