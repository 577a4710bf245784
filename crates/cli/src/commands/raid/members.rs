//! `lanefs raid fail`, `remove`, `add`, `replace`

use super::array::{ArrayArgument, Found, NothingMore};
use super::change::{Change, New, Outcome, Step};
use super::live;
use super::member_name::{absolute, real_or_as_is};
use super::progress::Bar;
use crate::cli::{Failure, OutputArguments, Report, printable};
use lanefs_raid5::Progress;
use serde_json::json;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Marks a member as failed, so that it is no longer used
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage.

Example:
  lanefs raid fail md:a.img,b.img,c.img b.img")]
pub struct FailArguments {
    #[command(flatten)]
    array: ArrayArgument,
    /// The member: its path or slot number
    member: PathBuf,
}

/// Removes failed and missing members from the metadata, which frees their device numbers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success, 1 failure, 2 wrong usage.

Example:
  lanefs raid remove md:a.img,missing,c.img")]
pub struct RemoveArguments {
    #[command(flatten)]
    array: ArrayArgument,
    #[command(flatten)]
    nothing_more: NothingMore,
}

/// Makes a device the member of the empty slot, and rebuilds the member
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success; 1 failure, or blocks could not be computed; 2 wrong usage.

Examples:
  lanefs raid add md:a.img,missing,c.img new.img
  lanefs raid add --spare md:a.img,b.img,c.img d.img
  lanefs raid add md:a.img,missing,c.img b.img      adds a former member again. If it missed no
                                                    write it is in sync at once; with a bitmap,
                                                    only missed writes are rebuilt

An interrupted rebuild continues when the array is used next.")]
pub struct AddArguments {
    #[command(flatten)]
    array: ArrayArgument,
    /// The device or image file; a file that does not exist is made
    device: PathBuf,
    /// Do not wait for the rebuild: the server of the mount rebuilds the member or, if the array is
    /// not mounted, the next use of the array does
    #[arg(long)]
    no_wait: bool,
    /// Overwrite the file system or other data that the device contains
    #[arg(short = 'F', long)]
    force: bool,
    /// Add a spare: it gets the slot of the next member that fails while the array is in use, if it
    /// is named as one more member of the array
    #[arg(long, conflicts_with = "no_wait")]
    spare: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Copies a member to another device, which then takes its slot
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 success; 1 failure, or blocks could not be computed; 2 wrong usage.

Example:
  lanefs raid replace md:a.img,b.img,c.img b.img new.img

The array can be mounted: data written meanwhile goes to both devices, so the array is never
degraded. If the new device fails, or the copy is stopped, the array is as before. If the old
device fails meanwhile, the new one gets its slot and is rebuilt.")]
pub struct ReplaceArguments {
    #[command(flatten)]
    array: ArrayArgument,
    /// The member to replace: its path or slot number
    member: PathBuf,
    /// The new device or image file; a file that does not exist is made
    device: PathBuf,
    /// Overwrite the file system or other data that the device contains
    #[arg(short = 'F', long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `lanefs raid fail`.
pub fn fail(arguments: &FailArguments) -> ExitCode {
    let change = Change::Fail { member: real_or_as_is(&arguments.member) };
    run("raid fail", &arguments.array, &change, Wait::ToTheEnd, false)
}

/// Runs `lanefs raid remove`.
pub fn remove(arguments: &RemoveArguments) -> ExitCode {
    run("raid remove", &arguments.array, &Change::Remove, Wait::ToTheEnd, false)
}

/// Runs `lanefs raid add`.
pub fn add(arguments: &AddArguments) -> ExitCode {
    let new = new(&arguments.device, arguments.force);
    let change = if arguments.spare { Change::Spare(new) } else { Change::Add(new) };
    let wait = if arguments.no_wait { Wait::ForTheSlot } else { Wait::ToTheEnd };
    run("raid add", &arguments.array, &change, wait, arguments.json)
}

fn new(device: &Path, force: bool) -> New {
    New { device: absolute(device), shown: device.display().to_string(), force }
}

/// How long a command waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The command waits until the change is complete.
    ToTheEnd,
    /// The command waits until the new member has its slot. The rebuild follows later: in the
    /// server of the mount or, if the array is not mounted, in the next program that uses it.
    ForTheSlot,
}

/// Carries out a change: in this process or, if the array is mounted, in the server of the mount.
fn run(
    command: &'static str,
    array: &ArrayArgument,
    change: &Change,
    wait: Wait,
    json: bool,
) -> ExitCode {
    let mut bar: Option<(Step, Bar)> = None;
    let mut step = |step: Step, progress: Progress| {
        if bar.as_ref().is_none_or(|(shown, _)| *shown != step) {
            bar = Some((step, Bar::new(step.name())));
        }
        match (&bar, wait) {
            (_, Wait::ForTheSlot) => ControlFlow::Break(()),
            (Some((_, bar)), Wait::ToTheEnd) => bar.go_on(progress),
            (None, Wait::ToTheEnd) => ControlFlow::Continue(()),
        }
    };
    let done = match array.open_or_mounted() {
        Ok(Found::Open(open)) => change.carry_out(&open, &mut step).and_then(|outcome| {
            array.close(open)?;
            Ok(outcome)
        }),
        Ok(Found::Mounted(place)) => live::ask(&place, change, &mut step),
        Err(failure) => Err(failure),
    };
    drop(bar);
    Report::run(command, |report| {
        let Outcome { text, unreadable } = done?;
        let facts = json!({ "done": text, "unreadable_blocks": unreadable });
        report.printed(OutputArguments { json, quiet: false }.print(&facts, [printable(&text)]));
        Ok(refuse_unreadable(array, unreadable)?)
    })
}

/// Runs `lanefs raid replace`.
pub fn replace(arguments: &ReplaceArguments) -> ExitCode {
    let new = new(&arguments.device, arguments.force);
    let change = Change::Replace { member: real_or_as_is(&arguments.member), new };
    run("raid replace", &arguments.array, &change, Wait::ToTheEnd, arguments.json)
}

/// Fails if blocks could not be computed.
pub(super) fn refuse_unreadable(array: &ArrayArgument, count: u64) -> Result<(), Failure> {
    let why = "blocks could not be computed: they cannot be read until they are written";
    if count > 0 { Err(array.failure(format_args!("{count} {why}"))) } else { Ok(()) }
}
