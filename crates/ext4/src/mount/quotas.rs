//! Starts the counting for quotas when a file system is mounted.

use crate::object::objects::Objects;
use crate::quota::Quotas;
use lanefs_ondisk::Unsupported;
use lanefs_ondisk::quota::Kind;
use lanefs_plan::Error;

/// Reads the quota files, if the file system has any; from now on each commit updates them.
/// Enforces the limits for the kinds of owners in `obeyed`.
///
/// # Errors
/// The errors of reading the quota files; [`Error::Unsupported`] if a kind in `obeyed` has no file.
pub(super) fn keep_quotas(objects: &Objects, obeyed: &[Kind]) -> Result<(), Error> {
    let mut ledgers = objects.read_quotas()?;
    for kind in obeyed {
        match ledgers.get_mut(kind.index()).and_then(Option::as_mut) {
            Some(ledger) => ledger.obey_limits(),
            None => {
                let what = format!("limits of a {} without a quota file", kind.name());
                return Err(Unsupported { what }.into());
            }
        }
    }
    if ledgers.iter().any(Option::is_some) {
        objects.mount.keep(Quotas::new(ledgers, objects.volume.geometry().first_ino()));
    }
    Ok(())
}
