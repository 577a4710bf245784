//! Members as people name them: by path, or by the number of a slot.

use crate::cli::Failure;
use lanefs::raid5::OpenArray;
use std::path::{Path, PathBuf};

/// What the member in `slot` is called.
pub fn name_of(array: &OpenArray, slot: usize) -> String {
    let members = array.metadata().members();
    let member = members.iter().find(|member| member.slot == Some(slot));
    member.map_or_else(|| format!("slot {slot}"), |member| member.name.display().to_string())
}

/// The slot of the member that is called so, or has this number.
pub fn slot_of(array: &OpenArray, member: &Path) -> Result<usize, Failure> {
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
pub fn absolute(path: &Path) -> PathBuf {
    real(path).or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.into())
}

/// The member's own path, or the number of a slot as it is.
pub fn real_or_as_is(member: &Path) -> PathBuf {
    real(member).unwrap_or_else(|| member.into())
}
