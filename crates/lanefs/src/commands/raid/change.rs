//! `lanefs raid fail`, `remove`, `add`, `replace`, `recover`

use super::ArrayArgument;
use super::progress::Bar;
use crate::cli::{Failure, Report, open_image, printable};
use lanefs::device::{Access, Device, DeviceError, OpenOptions};
use lanefs::raid5::{
    ArrayOptions, Candidate, DirtyAndDegraded, LogOutcome, NewMember, OpenArray, Rebuild, Standing,
    Status, Upkeep, Uuid,
};
use lanefs_ext4::mkfs::existing_signature;
use lanefs_ondisk::md::Role;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

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
}

/// Gives a device the slot that misses its member, and rebuilds it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lanefs raid add md:a.img,missing,c.img new.img
  lanefs raid add md:a.img,missing,c.img b.img      was it a member, and is there a bitmap, then
                                                    only what it missed is copied
A rebuild that is interrupted goes on when the array is used next.")]
pub struct AddArguments {
    #[command(flatten)]
    array: ArrayArgument,
    /// The device or image file
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
    /// The device or image file that takes its place
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
    let report = Report::new("raid fail");
    let work = || {
        let array = arguments.array.open_to_change()?;
        let slot = slot_of(&array, &arguments.member)?;
        let missing = array.array().degraded();
        if let Some(other) = missing.iter().find(|other| *other != slot) {
            return Err(arguments.array.failure(format_args!(
                "slot {other} has no member in step, so it cannot do without that of slot {slot}"
            )));
        }
        array.array().fail(slot).map_err(|error| arguments.array.failure(error))?;
        arguments.array.close(array)
    };
    report.check(work());
    report.exit()
}

/// `remove`
pub fn remove(arguments: &RemoveArguments) -> ExitCode {
    let report = Report::new("raid remove");
    let work = || {
        let array = arguments.array.open_to_change()?;
        array.forget_failed().map_err(|error| arguments.array.failure(error))?;
        arguments.array.close(array)
    };
    report.check(work());
    report.exit()
}

/// `add`
pub fn add(arguments: &AddArguments) -> ExitCode {
    let report = Report::new("raid add");
    let work = || -> Result<String, Failure> {
        let array = arguments.array.open_to_change()?;
        let new = new_member(&arguments.device, &array, arguments.force)?;
        let added = array.add(new).map_err(|error| arguments.array.refused(error))?;
        if !arguments.no_wait {
            let what = match added.misses {
                Rebuild::Whole => "rebuilding",
                Rebuild::Intended => "catching up",
            };
            let bar = Bar::new(what);
            let done = array.array().rebuild(added.slot, added.misses, &mut |p| bar.go_on(p));
            done.map_err(|error| arguments.array.failure(error))?;
        }
        arguments.array.close(array)?;
        let done = match (arguments.no_wait, added.misses) {
            (true, _) => "to be rebuilt",
            (false, Rebuild::Whole) => "rebuilt",
            (false, Rebuild::Intended) => "caught up from the bitmap",
        };
        Ok(format!("{}: in slot {}, {done}", arguments.device.display(), added.slot))
    };
    match work() {
        Ok(line) => report.printed(writeln!(std::io::stdout(), "{}", printable(&line))),
        Err(failure) => report.fail(failure),
    }
    report.exit()
}

/// `replace`
pub fn replace(arguments: &ReplaceArguments) -> ExitCode {
    let report = Report::new("raid replace");
    let work = || {
        let array = arguments.array.open_to_change()?;
        let slot = slot_of(&array, &arguments.member)?;
        let new = new_member(&arguments.device, &array, arguments.force)?;
        let bar = Bar::new("copying");
        let done = array.replace(slot, new, &mut |progress| bar.show(progress));
        done.map_err(|error| arguments.array.refused(error))
    };
    report.check(work());
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

fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// A member of the same array may come back to its own slot unasked, while nobody else has it.
fn new_member(path: &Path, array: &OpenArray, force: bool) -> Result<NewMember, Failure> {
    let members = array.metadata().members();
    let same = |known: &Path| real(known).is_some_and(|known| Some(known) == real(path));
    if members.iter().any(|known| same(&known.name)) {
        return Err(Failure::new(path.display(), "it is a member of the array already"));
    }
    let device = open_image(path, Access::ReadWrite, OpenOptions::default())
        .map_err(|error| Failure::opening(path, &error))?;
    let device: Arc<dyn Device> = Arc::new(device.keeping_length());
    let set = array.metadata().array().set();
    let own = Candidate::read(path, device.clone()).ok();
    let own = own.map(|own| own.superblock).filter(|own| own.set() == set);
    let taken = own.as_ref().and_then(|own| match own.role() {
        Role::Active(slot) => Some(usize::from(slot)),
        Role::Spare | Role::Faulty | Role::Journal => None,
    });
    let taken = taken.filter(|slot| members.iter().any(|known| known.slot == Some(*slot)));
    if let Some(slot) = taken.filter(|_| !force) {
        let cause = format!(
            "it seems to be a copy of the member in slot {slot} of this array, which has one; \
             --force overwrites it"
        );
        return Err(Failure::new(path.display(), cause));
    }
    if !force && own.is_none() {
        let found = existing_signature(&*device);
        if let Some(what) = found.map_err(|error| Failure::new(path.display(), error))? {
            let cause = format!("it seems to hold {what}; --force overwrites it");
            return Err(Failure::new(path.display(), cause));
        }
    }
    let uuid = Uuid(uuid::Uuid::new_v4().into_bytes());
    Ok(NewMember { name: path.into(), device, uuid })
}
