//! Scrubs an array in parts, and keeps the place, so that a scrub that was stopped can go on.
//!
//! The place is in a file of the host: md's formats have no field for it. It is only a hint, so an
//! error in writing the file is ignored: the next scrub then begins earlier.

use super::scrub_report::Scrubbed;
use lanefs::device::{Device, DeviceError};
use lanefs_raid5::{Array, Ended, Progress, Scrub, ScrubReport, Uuid};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most bytes of the file with the place that are read.
const LONGEST: u64 = 4096;

/// Bytes of a member between two records of the place.
const PART: u64 = 64 << 20;

/// Where a scrub begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// At the first row.
    First,
    /// Where the last scrub of the array was stopped.
    Last,
}

/// Scrubs an array, and keeps the place until it is done. The report includes what was found before
/// the stop.
pub fn scrub(
    array: &Array,
    set: Uuid,
    (what, start): (Scrub, Start),
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(ScrubReport, Ended), DeviceError> {
    let file = file_of(set, std::env::var_os);
    let (rows, repairs) = (array.geometry().rows(), what == Scrub::Repair);
    let kept = file.as_ref().filter(|_| start == Start::Last);
    let kept = kept.and_then(|file| place_in(&read(file)?, repairs, rows));
    let mut found = kept.unwrap_or_default();
    let part = (PART / array.geometry().chunk()).max(1);
    while found.rows < rows {
        let (more, ended) =
            array.scrub_rows(what, found.rows..found.rows.saturating_add(part), progress)?;
        found.rows = found.rows.saturating_add(more.rows);
        found.skipped = found.skipped.saturating_add(more.skipped);
        found.wrong_blocks = found.wrong_blocks.saturating_add(more.wrong_blocks);
        found.wrong_rows = found.wrong_rows.saturating_add(more.wrong_rows);
        found.unreadable_blocks = found.unreadable_blocks.saturating_add(more.unreadable_blocks);
        if found.rows < rows {
            // A repair before this place is not done again, so it must be durable.
            if repairs {
                array.flush()?;
            }
            let _ =
                file.as_ref().map(|file| keep(file, &json!(Scrubbed { found, repaired: repairs })));
        }
        if ended == Ended::Stopped && found.rows < rows {
            return Ok((found, Ended::Stopped));
        }
    }
    let _ = file.map(std::fs::remove_file);
    Ok((found, Ended::Done))
}

fn keep(file: &Path, report: &Value) -> std::io::Result<()> {
    file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let new = file.with_extension("new");
    let _ = std::fs::remove_file(&new); // of a process that was killed
    File::create_new(&new)?.write_all(report.to_string().as_bytes())?;
    std::fs::rename(new, file)
}

/// Returns the text of a file of this user. The path may be another's, who may have put a link or a
/// pipe there.
fn read(file: &Path) -> Option<String> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(flags.cast_signed()).open(file).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the place in `text` from which a scrub of an array of `rows` rows can go on. The place
/// of a scrub that only compared is none for a repair: what it found was not rewritten.
fn place_in(text: &str, repairs: bool, rows: u64) -> Option<ScrubReport> {
    let Scrubbed { found, repaired } = serde_json::from_str(text).ok()?;
    let is_sound = found.rows < rows && found.skipped.max(found.wrong_rows) <= found.rows;
    (is_sound && repaired == repairs).then_some(found)
}

/// Returns the file with the place of this array's scrub.
fn file_of(set: Uuid, variable: impl Fn(&'static str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    Some(state?.join("lanefs").join(format!("scrub-{}.json", set.to_string().replace(':', "-"))))
}

#[cfg(test)]
mod tests;
