//! `lanefs raid examine`

use super::array::refused;
use super::facts;
use crate::cli::Report;
use lanefs::device::Access;
use lanefs_raid5::Candidate;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows the metadata of single members
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success, 1 something could not be read (the rest was), 2 wrong usage.

Examples:
  lanefs raid examine a.img b.img
  lanefs raid examine --json /dev/sdb | jq '.[0].events'")]
pub struct Arguments {
    /// The members
    #[arg(value_name = "MEMBER", required = true)]
    members: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `lanefs raid examine`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("raid examine");
    let mut all = Vec::new();
    for path in &arguments.members {
        let opened = Candidate::open(path, Access::ReadOnly);
        let opened = report.given(opened.map_err(|error| refused(path, error)));
        let Some(candidate) = opened else { continue };
        let facts = facts::of_member(path, &candidate);
        if !arguments.json {
            report.printed(facts::print(&mut std::io::stdout(), &facts));
        }
        all.push(facts);
    }
    if arguments.json {
        report.printed(writeln!(std::io::stdout(), "{:#}", json!(all)));
    }
    report.exit()
}
