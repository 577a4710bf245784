//! `lanefs recover`

use crate::cli::{Failure, ImageArguments, JournalArguments, OutputArguments, Report, WholeImage};
use lanefs::device::Access;
use lanefs_offline::{Condition, Recovered, look_with, recover_with};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit code if the file system was recovered, equal to e2fsck's "errors corrected".
const RECOVERED: u8 = 1;
/// The exit code if problems are left, equal to e2fsck's "errors left uncorrected".
const LEFT: u8 = 4;
/// The exit code if the recovery failed, equal to e2fsck's "operational error".
const FAILED: u8 = 8;

/// Recovers an image after a crash without mounting it: replays the log, finishes orphans, marks
/// the image clean
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command does what the next mount would do, but the count and the times of mounts do not change.
A clean image is not written. Recorded errors, and a file system without a journal that was not
unmounted, are left to lanefs repair. If the recovery is interrupted, run it again.

Exit codes, as of e2fsck: 0 it was clean, 1 it was recovered, 4 it needs recovery (with -n) or has
errors (for lanefs repair or e2fsck), 8 failure, 2 wrong usage.

Examples:
  lanefs recover disk.img
  lanefs recover -n disk.img                   # looks and writes nothing
  lanefs recover --journal log.img disk.img    # the journal is on another device
  lanefs recover --json disk.img | jq .before.transactions")]
pub struct Arguments {
    /// The image
    image: PathBuf,
    #[command(flatten)]
    journal: JournalArguments,
    /// Only print what a recovery would do; write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    options: ImageArguments,
}

/// Runs `lanefs recover`.
pub fn run(arguments: &Arguments) -> ExitCode {
    ExitCode::from(code(arguments))
}

/// Recovers the image and prints what was done. Returns the exit code.
pub fn code(arguments: &Arguments) -> u8 {
    let report = Report::new("recover");
    let Some(found) = report.given(run_on(arguments)) else { return FAILED };
    report.printed(print(&found, arguments));
    if report.has_failed() {
        return FAILED;
    }
    let left = found.after.needs_recovery() || found.after.needs_check();
    match (left, found.before.needs_recovery()) {
        (true, _) => LEFT,
        (false, true) => RECOVERED,
        (false, false) => 0,
    }
}

fn run_on(arguments: &Arguments) -> Result<Recovered, Failure> {
    let access = if arguments.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let whole = WholeImage::open(&arguments.image, arguments.options, access)?;
    let journal = arguments.journal.open(access)?;
    let found = match arguments.dry_run {
        true => look_with(&whole.device(), journal.as_ref())
            .map(|before| Recovered { before, after: before }),
        false => recover_with(&whole.device(), journal.as_ref()),
    };
    whole.end(found)
}

fn print(found: &Recovered, arguments: &Arguments) -> std::io::Result<()> {
    let image = arguments.image.display().to_string();
    let facts = json!({
        "image": image,
        "dry_run": arguments.dry_run,
        "recovered": !arguments.dry_run && found.before.needs_recovery(),
        "before": condition(&found.before),
        "after": condition(&found.after),
    });
    let what = words(&found.before);
    let mut lines = Vec::new();
    match (found.before.needs_recovery(), arguments.dry_run) {
        (true, true) => lines.push(format!("{image}: to be recovered: {what}")),
        (true, false) => lines.push(format!("{image}: recovered: {what}")),
        (false, _) if !found.after.needs_check() => lines.push(format!("{image}: already clean")),
        (false, _) => {}
    }
    if found.after.has_errors {
        lines.push(format!("{image}: marked as having errors: {CHECK}"));
    }
    if found.after.is_unclean {
        lines.push(format!("{image}: no journal, and not unmounted: {CHECK}"));
    }
    arguments.output.print(&facts, lines)
}

/// What the user is advised to do about errors that a recovery cannot correct.
const CHECK: &str = "check it with lanefs repair or e2fsck -f";

fn condition(condition: &Condition) -> Value {
    json!({
        "torn_superblock": condition.torn_superblock,
        "needs_replay": condition.needs_replay,
        "transactions": condition.transactions,
        "fast_commits": condition.fast_commits,
        "blocks": condition.blocks,
        "orphans": condition.orphans,
        "has_stale_log": condition.has_stale_log,
        "half_journal": condition.half_journal,
        "has_errors": condition.has_errors,
        "is_unclean": condition.is_unclean,
    })
}

fn words(condition: &Condition) -> String {
    let mut words = Vec::new();
    if condition.torn_superblock {
        words.push("a torn superblock".to_owned());
    }
    if condition.needs_replay {
        let (transactions, blocks) = (condition.transactions, condition.blocks);
        let fast = match condition.fast_commits {
            0 => String::new(),
            count => format!(" and {count} fast commits"),
        };
        words.push(format!("{transactions} transactions{fast}, {blocks} blocks"));
    }
    if condition.has_stale_log {
        words.push("a change that was being prepared".to_owned());
    }
    if condition.orphans > 0 {
        words.push(format!("{} orphans", condition.orphans));
    }
    if condition.half_journal {
        words.push("a journal that was being added or removed".to_owned());
    }
    words.join("; ")
}
