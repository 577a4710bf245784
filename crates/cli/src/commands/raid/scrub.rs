//! `lanefs raid scrub`

use super::array::{ArrayArgument, NothingMore, close_whole, is_mount_point, parse_array};
use super::change::Change;
use super::live;
use super::progress::Bar;
use super::scrub_place::{self, Start};
use super::scrub_report::Scrubbed;
use crate::cli::{Failure, Report, Size};
use lanefs::device::Access;
use lanefs_raid5::{ArrayOptions, Scrub, ScrubReport, Source, Upkeep};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Checks the parity of all rows
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 all parity is right, or was repaired; 1 parity is wrong, or could not be checked;
2 wrong usage.

Examples:
  lanefs raid scrub md:a.img,b.img,c.img
  lanefs raid scrub --repair md:a.img,b.img,c.img      rewrites wrong parity from the data
  lanefs raid scrub --limit 50M mnt                    a mounted array

The server of the mount scrubs a mounted array. While others use the array, the scrub takes a tenth
of the time. It goes on if the command is interrupted, and ends with the mount. How far a scrub came
is kept in $XDG_STATE_HOME/lanefs or ~/.local/state/lanefs, of the user who mounted the array.")]
pub struct Arguments {
    /// The array: md:MEMBER,MEMBER,..., md:UUID, or the directory on which it is mounted
    #[arg(value_parser = parse_place)]
    array: PathBuf,
    #[command(flatten)]
    nothing_more: NothingMore,
    /// Rewrite wrong parity from the data
    #[arg(long)]
    repair: bool,
    /// The most bytes of each member to read in a second, of a mounted array (suffixes K, M, G)
    #[arg(long, value_name = "BYTES")]
    limit: Option<Size>,
    /// Go on where the last scrub of this array was stopped, on this host
    #[arg(long)]
    resume: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn start(&self) -> Start {
        if self.resume { Start::Last } else { Start::First }
    }
}

fn parse_place(name: &str) -> Result<PathBuf, &'static str> {
    let is_directory = || Path::new(name).is_dir().then(|| name.into());
    parse_array(name).or_else(|why| is_directory().ok_or(why))
}

/// Runs `lanefs raid scrub`.
pub fn run(arguments: &Arguments) -> ExitCode {
    Report::run("raid scrub", |report| {
        let array = ArrayArgument { array: arguments.array.clone() };
        let found = match Source::parse(arguments.array.as_os_str()) {
            Some(_) => scrub(arguments, &array),
            None => scrub_mounted(arguments),
        }?;
        report.printed(print_summary(&found, arguments));
        let (wrong, unreadable) = (found.wrong_blocks, found.unreadable_blocks);
        if wrong > 0 && !arguments.repair {
            let why = format_args!("parity of {wrong} blocks is wrong; --repair rewrites it");
            report.fail(array.failure(why));
        }
        if unreadable > 0 {
            report.fail(array.failure(format_args!(
                "{unreadable} blocks cannot be read, so their parity could not be checked"
            )));
        }
        if found.skipped > 0 {
            report.fail(array.failure(format_args!(
                "a member is missing: {} of {} rows could not be checked",
                found.skipped, found.rows
            )));
        }
        Ok(())
    })
}

/// Lets the server of a mount compare the parity.
fn scrub_mounted(arguments: &Arguments) -> Result<ScrubReport, Failure> {
    let place = arguments.array.as_path();
    if !is_mount_point(place) {
        return Err(Failure::new(place.display(), "no array is mounted on this directory"));
    }
    let bar = Bar::new("comparing");
    let limit = arguments.limit.map(Size::bytes);
    let change = Change::Scrub { repair: arguments.repair, limit, start: arguments.start() };
    let found = live::ask(place, &change, &mut |_, progress| bar.go_on(progress))?.text;
    let unclear = || Failure::new(place.display(), "the server's report cannot be read");
    let found = serde_json::from_str(&found).map(|Scrubbed { found, .. }| found);
    found.map_err(|_| unclear())
}

fn scrub(arguments: &Arguments, array: &ArrayArgument) -> Result<ScrubReport, Failure> {
    if arguments.limit.is_some() {
        return Err(Failure::new("--limit", "is for an array that is mounted"));
    }
    let (access, what) = match arguments.repair {
        true => (Access::ReadWrite, Scrub::Repair),
        false => (Access::ReadOnly, Scrub::Check),
    };
    let options = ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(access) };
    let open = array.open(options)?;
    let bar = Bar::new("comparing");
    let (set, how) = (open.metadata().array().set(), (what, arguments.start()));
    let done = scrub_place::scrub(open.array(), set, how, &mut |progress| bar.go_on(progress));
    let (found, _) = done.map_err(|error| array.failure(error))?;
    drop(bar);
    match access {
        Access::ReadOnly => array.close(open)?,
        Access::ReadWrite => close_whole(open)?,
    }
    Ok(found)
}

fn print_summary(found: &ScrubReport, arguments: &Arguments) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    if arguments.json {
        let facts = Scrubbed { found: *found, repaired: arguments.repair };
        return writeln!(out, "{:#}", json!(facts));
    }
    let compared = found.rows - found.skipped;
    match (compared, found.wrong_blocks) {
        (0, _) => Ok(()),
        (_, 0) if found.unreadable_blocks > 0 => Ok(()),
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
