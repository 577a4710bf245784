//! Replaces files, so that the old file stays until the new one is complete.

use super::Tree;
use crate::cli::Failure;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};

/// The number of temporary names that this process has chosen.
static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// Replaces `name` in `dir`, a file or an empty directory, by the file that `make` makes under the
/// name that it is given. If anything fails, what `make` has made is removed, and the old file is
/// unchanged.
pub fn replace<T: Tree>(
    target: &T,
    dir: &T::Node,
    name: &[u8],
    make: impl FnOnce(&[u8]) -> Result<(), Failure>,
) -> Result<T::Node, Failure> {
    let temporary = temporary_name(target, dir)?;
    let replaced = make(&temporary).and_then(|()| target.rename(dir, &temporary, name));
    replaced.map_err(|failure| {
        // These fail if nothing was made.
        let _ = target.remove(dir, &temporary).or_else(|_| target.remove_dir(dir, &temporary));
        failure.renamed(&target.show_entry(dir, &temporary), target.show_entry(dir, name))
    })
}

/// Returns a name that does not exist in `dir`. A name may stay if the process is killed, so the
/// number of the process alone makes it no new one.
fn temporary_name<T: Tree>(target: &T, dir: &T::Node) -> Result<Vec<u8>, Failure> {
    loop {
        let number = CHOSEN.fetch_add(1, Ordering::Relaxed);
        let name = format!(".lanefs-{}-{number}", std::process::id()).into_bytes();
        if target.look(dir, &name)?.is_none() {
            return Ok(name);
        }
    }
}
