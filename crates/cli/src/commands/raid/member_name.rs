//! Names of members on the command line: a path, or a slot number.

use crate::cli::Failure;
use lanefs_raid5::OpenArray;
use std::path::{Path, PathBuf};

/// Returns the name of the member in `slot`.
pub fn name_of(array: &OpenArray, slot: usize) -> String {
    let members = array.metadata().members();
    let member = members.iter().find(|member| member.slot == Some(slot));
    member.map_or_else(|| format!("slot {slot}"), |member| member.name.display().to_string())
}

/// Returns the slot of the member with this path or slot number.
pub fn slot_of(array: &OpenArray, member: &Path) -> Result<usize, Failure> {
    let members = array.metadata().members();
    let same = |name: &Path| name == member || real(name).is_some_and(|r| Some(r) == real(member));
    let by_name = members.iter().find(|known| same(&known.name)).and_then(|known| known.slot);
    let by_number = || member.to_str().and_then(|text| text.parse().ok());
    let slot =
        by_name.or_else(by_number).filter(|slot| members.iter().any(|m| m.slot == Some(*slot)));
    slot.ok_or_else(|| Failure::new(member.display(), "not a member in use of the array"))
}

/// Returns the absolute path without symbolic links, if the file exists.
pub fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Returns the absolute path. The server of a mount needs an absolute path, since its working
/// directory is not that of this command.
pub fn absolute(path: &Path) -> PathBuf {
    real(path).or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.into())
}

/// Returns the absolute path of a member that is given by its path. A slot number is returned as it
/// is.
pub fn real_or_as_is(member: &Path) -> PathBuf {
    real(member).unwrap_or_else(|| member.into())
}
