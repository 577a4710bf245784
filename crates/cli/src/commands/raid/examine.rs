//! `lanefs raid examine`

use super::array::refused;
use super::facts;
use crate::cli::Report;
use lanefs::device::Access;
use lanefs_raid5::Candidate;
use serde_json::{Value, json};
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
        match Candidate::open(path, Access::ReadOnly) {
            Err(error) => report.fail(refused(path, error)),
            Ok(candidate) => {
                let facts = facts::of_member(&candidate);
                if !arguments.json {
                    let name = path.display().to_string();
                    report.printed(facts::print(&mut std::io::stdout(), &name, &facts));
                }
                all.push(with_name(path, facts));
            }
        }
    }
    if arguments.json {
        report.printed(writeln!(std::io::stdout(), "{:#}", json!(all)));
    }
    report.exit()
}

fn with_name(path: &std::path::Path, facts: Value) -> Value {
    let mut named = serde_json::Map::new();
    named.insert("member".into(), json!(path.display().to_string()));
    if let Value::Object(facts) = facts {
        named.extend(facts);
    }
    Value::Object(named)
}
