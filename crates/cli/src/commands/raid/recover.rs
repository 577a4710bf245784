//! `lanefs raid recover`

use super::array::{ArrayArgument, NothingMore, close_whole};
use super::members::refuse_unreadable;
use super::progress::Bar;
use crate::cli::{OutputArguments, Report};
use lanefs::device::{Access, DeviceError};
use lanefs_raid5::{
    ArrayOptions, DirtyAndDegraded, LogOutcome, OpenArray, Rebuild, Standing, Status, Upkeep,
};
use serde_json::json;
use std::process::ExitCode;

/// Completes recovery after a crash: applies the log, rebuilds members, recomputes parity
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success; 1 failure, or blocks could not be computed; 2 wrong usage.

Examples:
  lanefs raid recover md:a.img,b.img,c.img
  lanefs raid recover --force md:a.img,missing,c.img

An array with a missing member is refused if parity may be wrong: after a crash without a partial
parity log, or before a resync is done. In such rows, data of the missing member cannot be computed.
With --force all parity is trusted; blocks in those rows may then be wrong, without an error.")]
pub struct Arguments {
    #[command(flatten)]
    array: ArrayArgument,
    #[command(flatten)]
    nothing_more: NothingMore,
    /// Trust parity that may be wrong; blocks that are computed from it may then be wrong too
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Rebuilds members and recomputes parity, where needed. `bar` takes the name of the work, and
/// creates its progress bar.
pub fn bring_in_step(
    array: &OpenArray,
    bar: impl Fn(&'static str) -> Bar,
) -> Result<(), DeviceError> {
    let status = array.array().status();
    for (slot, standing) in status.members.iter().enumerate() {
        if matches!(standing, Standing::Rebuilding { .. }) {
            let bar = bar("rebuilding");
            array.array().rebuild(slot, Rebuild::Whole, &mut |progress| bar.go_on(progress))?;
        }
    }
    if status.unsynced_rows > 0 {
        let bar = bar("computing parity");
        array.array().resync(&mut |progress| bar.go_on(progress))?;
    }
    Ok(())
}

/// Runs `lanefs raid recover`.
pub fn run(arguments: &Arguments) -> ExitCode {
    Report::run("raid recover", |report| {
        let array = arguments.array.open(ArrayOptions {
            upkeep: Upkeep::Caller,
            dirty_and_degraded: match arguments.force {
                true => DirtyAndDegraded::Accept,
                false => DirtyAndDegraded::Refuse,
            },
            ..ArrayOptions::new(Access::ReadWrite)
        })?;
        let found = array.array().status();
        bring_in_step(&array, Bar::new).map_err(|error| arguments.array.failure(error))?;
        let (log, unreadable) = (array.log(), array.unreadable_blocks());
        close_whole(array)?;
        let lines = recovered(&found, log);
        let facts = json!({ "done": lines, "unreadable_blocks": unreadable });
        let output = OutputArguments { json: arguments.json, quiet: false };
        report.printed(output.print(&facts, lines));
        Ok(refuse_unreadable(&arguments.array, unreadable)?)
    })
}

/// Returns the lines that describe what the recovery did.
fn recovered(found: &Status, log: Option<LogOutcome>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(log) = log {
        lines.push(format!(
            "partial parity log: {} entries applied, {} damaged",
            log.entries, log.damaged
        ));
    }
    for (slot, standing) in found.members.iter().enumerate() {
        match standing {
            Standing::Rebuilding { row } => {
                lines.push(format!("slot {slot} rebuilt from row {row} on"));
            }
            Standing::Missing => lines.push(format!("slot {slot} has no member")),
            Standing::InSync => {}
        }
    }
    if found.unsynced_rows > 0 {
        lines.push(format!("parity of {} rows computed again", found.unsynced_rows));
    }
    if lines.is_empty() {
        lines.push("nothing was left to do".to_owned());
    }
    lines
}
