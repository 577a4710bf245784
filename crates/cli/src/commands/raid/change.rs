//! `lanefs raid fail`, `remove`, `add`, `replace`, `recover`

use super::new_member::{MadeFile, new_member};
use super::progress::Bar;
use super::{ArrayArgument, Found, NothingMore, live, refused};
use crate::cli::{Failure, Report, printable};
use lanefs::device::{Access, DeviceError};
use lanefs::raid5::{
    ArrayOptions, DirtyAndDegraded, Ended, LogOutcome, OpenArray, Progress, Rebuild, Standing,
    Status, Upkeep,
};
use serde_json::{Value, json};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Records that a member failed: it is not used any more
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lanefs raid fail md:a.img,b.img,c.img b.img")]
pub struct FailArguments {
    #[command(flatten)]
    array: ArrayArgument,
    /// The member, or its slot's number
    member: PathBuf,
}

/// Forgets members that failed or are missing, so that their device numbers are free again
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lanefs raid remove md:a.img,missing,c.img")]
pub struct RemoveArguments {
    #[command(flatten)]
    array: ArrayArgument,
    #[command(flatten)]
    nothing_more: NothingMore,
}

/// Gives a device the slot that misses its member, and rebuilds it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs raid add md:a.img,missing,c.img new.img
  lanefs raid add md:a.img,missing,c.img b.img      a member that was away: if it missed nothing,
                                                    it is one again at once; with a bitmap, only
                                                    what it missed is copied
A rebuild that is interrupted goes on when the array is used next.")]
pub struct AddArguments {
    #[command(flatten)]
    array: ArrayArgument,
    /// The device or image file; a file that is not there is made
    device: PathBuf,
    /// Leave the rebuild to whoever uses the array next
    #[arg(long)]
    no_wait: bool,
    /// Overwrite what seems to hold something already
    #[arg(short = 'F', long)]
    force: bool,
}

/// Copies a member to another device, which then takes its slot
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lanefs raid replace md:a.img,b.img,c.img b.img new.img")]
pub struct ReplaceArguments {
    #[command(flatten)]
    array: ArrayArgument,
    /// The member, or its slot's number
    member: PathBuf,
    /// The device or image file that takes its place; a file that is not there is made
    device: PathBuf,
    /// Overwrite what seems to hold something already
    #[arg(short = 'F', long)]
    force: bool,
}

/// Does now what is left to do after a crash: applies the log, rebuilds, makes parity right
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs raid recover md:a.img,b.img,c.img
  lanefs raid recover --force md:a.img,missing,c.img

An array that was being written when it stopped, and now misses a member, is refused if it has no
partial parity log: what the missing member held in rows under way cannot be told any more. --force
takes all parity as right; blocks in those rows may then read back wrong, without an error.")]
pub struct RecoverArguments {
    #[command(flatten)]
    array: ArrayArgument,
    #[command(flatten)]
    nothing_more: NothingMore,
    /// Accept that blocks of rows that were being written may be wrong
    #[arg(long)]
    force: bool,
}

/// Rebuilds what is to be rebuilt, and makes parity right.
pub fn bring_in_step(array: &OpenArray) -> Result<(), DeviceError> {
    let status = array.array().status();
    for (slot, standing) in status.members.iter().enumerate() {
        if matches!(standing, Standing::Rebuilding { .. }) {
            let bar = Bar::new("rebuilding");
            array.array().rebuild(slot, Rebuild::Whole, &mut |progress| bar.go_on(progress))?;
        }
    }
    if status.unsynced_rows > 0 {
        let bar = Bar::new("making parity right");
        array.array().resync(&mut |progress| bar.go_on(progress))?;
    }
    Ok(())
}

/// `fail`
pub fn fail(arguments: &FailArguments) -> ExitCode {
    let change = Change::Fail { member: real_or_as_is(&arguments.member) };
    run("raid fail", &arguments.array, &change, Wait::ToTheEnd)
}

/// `remove`
pub fn remove(arguments: &RemoveArguments) -> ExitCode {
    run("raid remove", &arguments.array, &Change::Remove, Wait::ToTheEnd)
}

/// `add`
pub fn add(arguments: &AddArguments) -> ExitCode {
    let change = Change::Add {
        device: absolute(&arguments.device),
        shown: arguments.device.display().to_string(),
        force: arguments.force,
    };
    let wait = if arguments.no_wait { Wait::ForTheSlot } else { Wait::ToTheEnd };
    run("raid add", &arguments.array, &change, wait)
}

/// How long a command waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Until all is done.
    ToTheEnd,
    /// Until the new member has its slot: the next user of the array rebuilds.
    ForTheSlot,
}

/// Carries a change out, here or beside the mount of the array.
fn run(command: &'static str, array: &ArrayArgument, change: &Change, wait: Wait) -> ExitCode {
    let report = Report::new(command);
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
        Ok(Found::Open(open)) => change.carry_out(&open, &mut step).and_then(|text| {
            array.close(open)?;
            Ok(text)
        }),
        Ok(Found::Mounted(place)) => live::ask(&place, change, &mut step),
        Err(failure) => Err(failure),
    };
    drop(bar);
    tell(&report, done);
    report.exit()
}

/// What a change of an array is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The new member gets all of its share.
    Rebuilding,
    /// It gets what it missed.
    CatchingUp,
}

impl Step {
    /// What people read.
    pub fn name(self) -> &'static str {
        match self {
            Step::Rebuilding => "rebuilding",
            Step::CatchingUp => "catching up",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Step> {
        [Step::Rebuilding, Step::CatchingUp].into_iter().find(|step| step.name() == name)
    }
}

/// A change of an array's members that reads and writes may go on beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Takes a member out, by name or slot.
    Fail {
        /// The member.
        member: PathBuf,
    },
    /// Forgets those that failed.
    Remove,
    /// Gives the free slot to a device, and rebuilds it.
    Add {
        /// The device.
        device: PathBuf,
        /// What the caller calls it.
        shown: String,
        /// Whatever it holds.
        force: bool,
    },
}

impl Change {
    /// What it is about, as the caller calls it.
    pub fn subject(&self) -> String {
        match self {
            Change::Fail { member } => member.display().to_string(),
            Change::Remove => "array".to_owned(),
            Change::Add { shown, .. } => shown.clone(),
        }
    }

    /// As a server is asked for it.
    pub fn to_json(&self) -> Value {
        match self {
            Change::Fail { member } => json!({ "change": "fail", "member": member }),
            Change::Remove => json!({ "change": "remove" }),
            Change::Add { device, shown, force } => {
                json!({ "change": "add", "device": device, "shown": shown, "force": force })
            }
        }
    }

    /// What a server is asked for.
    pub fn from_json(value: &Value) -> Option<Change> {
        let text = |name: &str| value.get(name)?.as_str();
        Some(match text("change")? {
            "fail" => Change::Fail { member: text("member")?.into() },
            "remove" => Change::Remove,
            "add" => Change::Add {
                device: text("device")?.into(),
                shown: text("shown")?.into(),
                force: value.get("force")?.as_bool()?,
            },
            _ => return None,
        })
    }

    /// Does it; gives what was done. `step` hears of long work, and may stop it: it goes on when the
    /// array is used next.
    pub fn carry_out(
        &self,
        array: &OpenArray,
        step: &mut dyn FnMut(Step, Progress) -> ControlFlow<()>,
    ) -> Result<String, Failure> {
        match self {
            Change::Fail { member } => fail_member(array, member),
            Change::Remove => {
                let forgotten = array.forget_failed();
                Ok(match forgotten.map_err(|error| Failure::new("array", error))? {
                    0 => "no member had failed: nothing to forget".to_owned(),
                    1 => "1 failed member forgotten".to_owned(),
                    many => format!("{many} failed members forgotten"),
                })
            }
            Change::Add { device, shown, force } => add_member(array, device, shown, *force, step),
        }
    }
}

fn fail_member(array: &OpenArray, member: &Path) -> Result<String, Failure> {
    let slot = slot_of(array, member)?;
    let name = name_of(array, slot);
    let missing = array.array().degraded();
    if let Some(other) = missing.iter().find(|other| *other != slot) {
        let cause = format!("slot {other} has no member in step, so the array needs this one");
        return Err(Failure::new(name, cause));
    }
    array.array().fail(slot).map_err(|error| Failure::new(&name, error))?;
    Ok(format!("{name}: failed, slot {slot} has no member now; the array is degraded"))
}

fn add_member(
    array: &OpenArray,
    device: &Path,
    shown: &str,
    force: bool,
    step: &mut dyn FnMut(Step, Progress) -> ControlFlow<()>,
) -> Result<String, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(shown, error);
    let made = MadeFile::for_member(device, array)?;
    let new = new_member(device, array, force)?;
    let added = array.add(new).map_err(|error| refused(Path::new(shown), error))?;
    made.keep();
    let slot = added.slot;
    let Some(misses) = added.misses else {
        return Ok(format!("{shown}: in slot {slot}, which missed nothing"));
    };
    let (what, done) = match misses {
        Rebuild::Whole => (Step::Rebuilding, "rebuilt"),
        Rebuild::Intended => (Step::CatchingUp, "caught up from the bitmap"),
    };
    // Asked before the first row too: a caller that does not wait does not wait for one.
    let begin = Progress { done: 0, total: array.array().geometry().member_len() };
    let ended = match step(what, begin) {
        ControlFlow::Break(()) => Ended::Stopped,
        ControlFlow::Continue(()) => {
            let rebuilt = array.array().rebuild(slot, misses, &mut |p| step(what, p));
            rebuilt.map_err(|error| failed(&error))?
        }
    };
    Ok(match ended {
        Ended::Done => format!("{shown}: in slot {slot}, {done}"),
        Ended::Stopped => format!("{shown}: in slot {slot}, to be rebuilt when the array is used"),
    })
}

/// `replace`
pub fn replace(arguments: &ReplaceArguments) -> ExitCode {
    let report = Report::new("raid replace");
    let work = || -> Result<String, Failure> {
        let array = arguments.array.open_to_change()?;
        let slot = slot_of(&array, &arguments.member)?;
        let before = name_of(&array, slot);
        let made = MadeFile::for_member(&arguments.device, &array)?;
        let new = new_member(&arguments.device, &array, arguments.force)?;
        let bar = Bar::new("copying");
        let done = array.replace(slot, new, &mut |progress| bar.show(progress));
        done.map_err(|error| arguments.array.refused(error))?;
        made.keep();
        Ok(format!("{}: in slot {slot}, in place of {before}", arguments.device.display()))
    };
    tell(&report, work());
    report.exit()
}

/// `recover`
pub fn recover(arguments: &RecoverArguments) -> ExitCode {
    let report = Report::new("raid recover");
    let work = || -> Result<Vec<String>, Failure> {
        let array = arguments.array.open(ArrayOptions {
            upkeep: Upkeep::Caller,
            dirty_and_degraded: match arguments.force {
                true => DirtyAndDegraded::Accept,
                false => DirtyAndDegraded::Refuse,
            },
            ..ArrayOptions::new(Access::ReadWrite)
        })?;
        let found = array.array().status();
        bring_in_step(&array).map_err(|error| arguments.array.failure(error))?;
        let log = array.log();
        arguments.array.close(array)?;
        Ok(recovered(&found, log))
    };
    match work() {
        Ok(lines) => {
            report.printed(lines.iter().try_for_each(|line| writeln!(std::io::stdout(), "{line}")));
        }
        Err(failure) => report.fail(failure),
    }
    report.exit()
}

/// What there was to do.
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
        lines.push(format!("parity of {} rows made right", found.unsynced_rows));
    }
    if lines.is_empty() {
        lines.push("nothing was left to do".to_owned());
    }
    lines
}

/// Says what was done, or why not.
fn tell(report: &Report, done: Result<String, Failure>) {
    match done {
        Ok(line) => report.printed(writeln!(std::io::stdout(), "{}", printable(&line))),
        Err(failure) => report.fail(failure),
    }
}

/// What the member in `slot` is called.
fn name_of(array: &OpenArray, slot: usize) -> String {
    let members = array.metadata().members();
    let member = members.iter().find(|member| member.slot == Some(slot));
    member.map_or_else(|| format!("slot {slot}"), |member| member.name.display().to_string())
}

/// The slot of the member that is called so, or has this number.
fn slot_of(array: &OpenArray, member: &Path) -> Result<usize, Failure> {
    let members = array.metadata().members();
    let same = |name: &Path| name == member || real(name).is_some_and(|r| Some(r) == real(member));
    let by_name = members.iter().find(|known| same(&known.name)).and_then(|known| known.slot);
    let by_number = || member.to_str().and_then(|text| text.parse().ok());
    let slot =
        by_name.or_else(by_number).filter(|slot| members.iter().any(|m| m.slot == Some(*slot)));
    slot.ok_or_else(|| Failure::new(member.display(), "not a member in use of the array"))
}

/// The path without symbolic links and from the root, if there is something.
pub fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// A server has another working directory.
fn absolute(path: &Path) -> PathBuf {
    real(path).or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.into())
}

/// The member's own path, or the number of a slot as it is.
fn real_or_as_is(member: &Path) -> PathBuf {
    real(member).unwrap_or_else(|| member.into())
}
