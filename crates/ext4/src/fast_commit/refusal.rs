//! The error for fast commits that cannot be replayed.

use crate::error::Error;
use lanefs_ondisk::Unsupported;

/// Returns the error; `why` completes "fast commits ...".
pub(super) fn refused(why: &str) -> Error {
    let what = format!(
        "fast_commit: fast commits {why} (mount it with the kernel's ext4, which replays them)"
    );
    Unsupported { what }.into()
}
