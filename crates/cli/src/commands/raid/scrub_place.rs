//! Scrubs an array in parts, and keeps the place, so that a scrub that was stopped can go on.
//!
//! The place is in a file of the host: md's formats have no field for it. It is only a hint, so an
//! error in writing the file is ignored: the next scrub then begins earlier.

use super::scrub_report::{from_json, report_json};
use lanefs::device::DeviceError;
use lanefs::raid5::{Array, Ended, Progress, Scrub, ScrubReport, Uuid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

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
    let kept = file.as_ref().filter(|_| start == Start::Last).and_then(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        from_json(&serde_json::from_str(&text).ok()?)
    });
    let rows = array.geometry().rows();
    let mut found = kept.filter(|kept| kept.rows < rows).unwrap_or_default();
    let part = (PART / array.geometry().chunk()).max(1);
    while found.rows < rows {
        let (more, ended) =
            array.scrub_rows(what, found.rows..found.rows.saturating_add(part), progress)?;
        found.rows += more.rows;
        found.skipped += more.skipped;
        found.wrong_blocks += more.wrong_blocks;
        found.wrong_rows += more.wrong_rows;
        found.unreadable_blocks += more.unreadable_blocks;
        if found.rows < rows {
            let _ = file.as_ref().map(|file| keep(file, &report_json(&found, false)));
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
    std::fs::write(&new, report.to_string())?;
    std::fs::rename(new, file)
}

/// Returns the file with the place of this array's scrub.
fn file_of(set: Uuid, variable: impl Fn(&'static str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    Some(state?.join("lanefs").join(format!("scrub-{}.json", set.to_string().replace(':', "-"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_in_the_folder_for_states() {
        let set = Uuid([1; 16]);
        let with = |wanted: &'static str, path: &'static str| {
            file_of(set, move |name| (name == wanted).then(|| path.into()))
        };
        let name = "lanefs/scrub-01010101-01010101-01010101-01010101.json";
        assert_eq!(with("XDG_STATE_HOME", "/s"), Some(PathBuf::from("/s").join(name)));
        assert_eq!(with("HOME", "/h"), Some(PathBuf::from("/h/.local/state").join(name)));
        assert_eq!(with("HOME", "h"), None);
    }
}
