//! A change of an array's members, carried out by the process that has the array open.

use super::array::refused;
use super::member_name::{name_of, slot_of};
use super::new_member::{make_file, new_member};
use super::pace::Pace;
use super::scrub_place::{self, Start};
use super::scrub_report::Scrubbed;
use crate::cli::{Failure, MadeFile};
use lanefs_raid5::{
    Added, AssembleError, Ended, NewMember, OpenArray, Progress, Rebuild, Replaced, Scrub, Source,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The current step of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// All rows of the new member are being rebuilt.
    Rebuilding,
    /// The new member was in the array before. The rows that were written in its absence are being
    /// rebuilt.
    CatchingUp,
    /// The replaced member is being copied.
    Copying,
    /// Parity is being compared with the data.
    Comparing,
}

impl Step {
    /// Returns the step's name, as it appears in messages.
    pub fn name(self) -> &'static str {
        match self {
            Step::Rebuilding => "rebuilding",
            Step::CatchingUp => "catching up",
            Step::Copying => "copying",
            Step::Comparing => "comparing",
        }
    }

    /// Returns the step with this name.
    pub fn named(name: &str) -> Option<Step> {
        let all = [Step::Rebuilding, Step::CatchingUp, Step::Copying, Step::Comparing];
        all.into_iter().find(|step| step.name() == name)
    }
}

/// The caller's function that gets the progress of a rebuild or copy, and may stop it.
pub type OnStep<'a> = dyn FnMut(Step, Progress) -> ControlFlow<()> + 'a;

/// A change of an array's members that can run while the array is in use. As JSON it is a request
/// to the server of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum Change {
    /// Marks a member as failed. The member is given by name or slot.
    Fail {
        /// The member.
        member: PathBuf,
    },
    /// Removes failed members from the metadata.
    Remove,
    /// Makes a device the member of the empty slot, and rebuilds the member.
    Add(New),
    /// Copies a member, given by name or slot, to a device. The device then takes the member's
    /// slot.
    Replace {
        /// The member.
        member: PathBuf,
        /// The device.
        #[serde(flatten)]
        new: New,
    },
    /// Compares all parity with the data. The result is a report in JSON.
    Scrub {
        /// Rewrite wrong parity from the data.
        repair: bool,
        /// The most bytes of each member to read in a second.
        limit: Option<u64>,
        /// Where to begin.
        start: Start,
    },
    /// Adds a device that gets the slot of the next member that fails.
    Spare(New),
}

/// A device that is to become a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct New {
    /// The device.
    pub device: PathBuf,
    /// The caller's name for the device.
    pub shown: String,
    /// Replace the contents of the device, whatever they are.
    pub force: bool,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// A line that describes it.
    pub text: String,
    /// The number of blocks of 4 KiB that could not be computed, and cannot be read.
    pub unreadable: u64,
}

impl Change {
    /// Returns the device or member that the change concerns, under the name that the caller gave.
    pub fn subject(&self) -> String {
        match self {
            Change::Fail { member } => member.display().to_string(),
            Change::Remove | Change::Scrub { .. } => "array".to_owned(),
            Change::Add(new) | Change::Replace { new, .. } | Change::Spare(new) => {
                new.shown.clone()
            }
        }
    }

    /// Carries out the change, and returns the result. `step` is called during a rebuild or copy
    /// and may stop it. A stopped rebuild continues when the array is used next. A stopped copy
    /// leaves the array as it was.
    pub fn carry_out(&self, array: &OpenArray, step: &mut OnStep<'_>) -> Result<Outcome, Failure> {
        let before = array.unreadable_blocks();
        let text = self.work(array, step)?;
        Ok(Outcome { text, unreadable: array.unreadable_blocks().saturating_sub(before) })
    }

    fn work(&self, array: &OpenArray, step: &mut OnStep<'_>) -> Result<String, Failure> {
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
            Change::Add(new) => {
                let added = with_device(array, new, OpenArray::add)?;
                bring_in_step(array, added, &new.shown, step)
            }
            Change::Replace { member, new } => replace_member(array, member, new, step),
            Change::Scrub { repair, limit, start } => {
                let what = if *repair { Scrub::Repair } else { Scrub::Check };
                scrub(array, (what, *start), *limit, step)
            }
            Change::Spare(new) => {
                with_device(array, new, OpenArray::add_spare)?;
                let what = "a spare, which gets the slot of the next member that fails";
                Ok(format!("{}: {what}", new.shown))
            }
        }
    }
}

/// Compares all parity of an array in use with the data.
fn scrub(
    array: &OpenArray,
    how: (Scrub, Start),
    limit: Option<u64>,
    step: &mut OnStep<'_>,
) -> Result<String, Failure> {
    let mut pace = Pace::new(array, limit);
    let set = array.metadata().array().set();
    let done = scrub_place::scrub(array.array(), set, how, &mut |progress| {
        pace.rest(array, || step(Step::Comparing, progress).is_break());
        step(Step::Comparing, progress)
    });
    match done.map_err(|error| Failure::new("array", error))? {
        (found, Ended::Done) => {
            Ok(json!(Scrubbed { found, repaired: how.0 == Scrub::Repair }).to_string())
        }
        (found, Ended::Stopped) => {
            let compared = found.rows - found.skipped;
            let why = format_args!("stopped after {compared} rows were compared: --resume goes on");
            Err(Failure::new("array", why))
        }
    }
}

fn fail_member(array: &OpenArray, member: &Path) -> Result<String, Failure> {
    let slot = slot_of(array, member)?;
    let name = name_of(array, slot);
    let missing = array.array().degraded();
    if let Some(other) = missing.iter().find(|other| *other != slot) {
        let cause = format!("slot {other} has no member in sync, so the array needs this one");
        return Err(Failure::new(name, cause));
    }
    array.array().fail(slot).map_err(|error| Failure::new(&name, error))?;
    Ok(format!("{name}: failed, slot {slot} has no member now; the array is degraded"))
}

/// Opens the device `new`, or creates a file of this name, and calls `add` with it. The file stays
/// if it is in the array, or may be.
fn with_device<T>(
    array: &OpenArray,
    new: &New,
    add: impl FnOnce(&OpenArray, NewMember) -> Result<T, AssembleError>,
) -> Result<T, Failure> {
    let made = make_file(&new.device, array)?;
    let done = add(array, new_member(&new.device, array, new.force)?);
    if matches!(done, Ok(_) | Err(AssembleError::Unsettled(_))) {
        made.into_iter().for_each(MadeFile::keep);
    }
    done.map_err(|error| match error {
        AssembleError::Unsettled(_) => unsettled(array, &[&new.device], &new.shown, &error),
        error => refused(Path::new(&new.shown), error),
    })
}

/// Returns the failure of a change whose outcome is not known: the superblocks may name any of
/// `devices`. The message says how to find the outcome.
fn unsettled(array: &OpenArray, devices: &[&Path], shown: &str, error: &AssembleError) -> Failure {
    let known = array.metadata().members();
    let mut names: Vec<&Path> = known.iter().map(|member| member.name.as_path()).collect();
    let others = devices.iter().filter(|device| !names.contains(device));
    names.extend(others.copied().collect::<Vec<_>>());
    Failure::new(
        shown,
        format_args!(
            "{error}: keep all devices, and look which of them the array uses: \
             lanefs raid status {}",
            Source::name_of(names).display()
        ),
    )
}

/// Rebuilds a member that was put into its slot. Returns a line with the result.
fn bring_in_step(
    array: &OpenArray,
    added: Added,
    shown: &str,
    step: &mut OnStep<'_>,
) -> Result<String, Failure> {
    let slot = added.slot;
    let Some(misses) = added.misses else {
        return Ok(format!("{shown}: in slot {slot}, which missed nothing"));
    };
    let (what, done) = match misses {
        Rebuild::Whole => (Step::Rebuilding, "rebuilt"),
        Rebuild::Intended => (Step::CatchingUp, "caught up from the bitmap"),
    };
    // `step` is also called before the first row, so that a caller that does not want to wait can
    // return at once.
    let begin = Progress { done: 0, total: array.array().geometry().member_len() };
    let ended = match step(what, begin) {
        ControlFlow::Break(()) => Ended::Stopped,
        ControlFlow::Continue(()) => {
            let rebuilt = array.array().rebuild(slot, misses, &mut |p| step(what, p));
            rebuilt.map_err(|error| Failure::new(shown, error))?
        }
    };
    Ok(match ended {
        Ended::Done => format!("{shown}: in slot {slot}, {done}"),
        Ended::Stopped => format!("{shown}: in slot {slot}, to be rebuilt when the array is used"),
    })
}

fn replace_member(
    array: &OpenArray,
    member: &Path,
    New { device, shown, force }: &New,
    step: &mut OnStep<'_>,
) -> Result<String, Failure> {
    let slot = slot_of(array, member)?;
    let before = name_of(array, slot);
    let made = make_file(device, array)?;
    let new = new_member(device, array, *force)?;
    let missing = array.array().degraded();
    let done = array.replace(slot, new, &mut |progress| step(Step::Copying, progress));
    if matches!(done, Ok(Replaced::Done | Replaced::Added(_)) | Err(AssembleError::Unsettled(_))) {
        made.into_iter().for_each(MadeFile::keep);
    }
    match done {
        Ok(Replaced::Done) => Ok(format!("{shown}: in slot {slot}, in place of {before}")),
        Ok(Replaced::Stopped) => {
            Err(Failure::new(shown, "the copy was stopped; the array is as before"))
        }
        Ok(Replaced::Added(added)) => {
            let rebuilt = bring_in_step(array, added, shown, step)?;
            Ok(format!("{rebuilt}; {before} failed while it was copied"))
        }
        Err(error @ AssembleError::Unsettled(_)) => {
            Err(unsettled(array, &[Path::new(&before), device], shown, &error))
        }
        Err(error) => {
            let what = match array.array().degraded() == missing {
                true => "the array is as before",
                false => "the array is degraded",
            };
            Err(Failure::new(shown, format_args!("{error}; {what}")))
        }
    }
}
