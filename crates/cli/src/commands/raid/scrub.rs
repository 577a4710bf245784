//! `lanefs raid scrub`

use super::array::{ArrayArgument, NothingMore};
use super::progress::Bar;
use crate::cli::{Failure, Report};
use lanefs::device::Access;
use lanefs::raid5::{ArrayOptions, Scrub, ScrubReport, Upkeep};
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

/// Checks the parity of all rows
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 all parity is right, or was repaired; 1 parity is wrong, or could not be checked;
2 wrong usage.

Examples:
  lanefs raid scrub md:a.img,b.img,c.img
  lanefs raid scrub --repair md:a.img,b.img,c.img      rewrites wrong parity from the data")]
pub struct Arguments {
    #[command(flatten)]
    array: ArrayArgument,
    #[command(flatten)]
    nothing_more: NothingMore,
    /// Rewrite wrong parity from the data
    #[arg(long)]
    repair: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `lanefs raid scrub`.
pub fn run(arguments: &Arguments) -> ExitCode {
    let report = Report::new("raid scrub");
    match scrub(arguments) {
        Ok(found) => {
            report.printed(print_summary(&found, arguments));
            if found.wrong_blocks > 0 && !arguments.repair {
                report.fail(arguments.array.failure(format_args!(
                    "parity of {} blocks is wrong; --repair rewrites it",
                    found.wrong_blocks
                )));
            }
            if found.skipped > 0 {
                report.fail(arguments.array.failure(format_args!(
                    "a member is missing: {} of {} rows could not be checked",
                    found.skipped, found.rows
                )));
            }
        }
        Err(failure) => report.fail(failure),
    }
    report.exit()
}

fn scrub(arguments: &Arguments) -> Result<ScrubReport, Failure> {
    let (access, what) = match arguments.repair {
        true => (Access::ReadWrite, Scrub::Repair),
        false => (Access::ReadOnly, Scrub::Check),
    };
    let options = ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(access) };
    let array = arguments.array.open(options)?;
    let bar = Bar::new("comparing");
    let done = array.array().scrub(what, &mut |progress| bar.go_on(progress));
    let (found, _) = done.map_err(|error| arguments.array.failure(error))?;
    drop(bar);
    arguments.array.close(array)?;
    Ok(found)
}

fn print_summary(found: &ScrubReport, arguments: &Arguments) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    if arguments.json {
        let facts = json!({
            "rows": found.rows,
            "skipped_rows": found.skipped,
            "wrong_rows": found.wrong_rows,
            "wrong_blocks": found.wrong_blocks,
            "repaired": arguments.repair,
        });
        return writeln!(out, "{facts:#}");
    }
    let compared = found.rows - found.skipped;
    match (compared, found.wrong_blocks) {
        (0, _) => Ok(()),
        (_, 0) => writeln!(out, "{compared} rows compared: parity is right"),
        (_, blocks) => {
            let rows = found.wrong_rows;
            let end = if arguments.repair { "; it was rewritten" } else { "" };
            writeln!(
                out,
                "{compared} rows compared: parity was wrong in {blocks} blocks of {rows} rows{end}"
            )
        }
    }
}
