//! Both sets of policies under the same suites: what was done before is measured, so it has to be right.

use lanefs_ext4::{MountOptions, OneLockCache, Policies};
use std::sync::Arc;

/// How a run of `seed` mounts: two of five with the policies of before, names and inodes behind
/// one lock included. Suites choose their images by the seed too, by threes and fours.
pub fn mount_options(seed: u64) -> MountOptions {
    if !matches!(seed % 5, 2 | 3) {
        return MountOptions::default();
    }
    let names = Arc::new(OneLockCache::new(4096));
    MountOptions { policies: Policies::before(), names, ..MountOptions::default() }
}
