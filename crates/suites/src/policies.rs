//! All policies and little memory under the same suites: what was done before is measured, so it has to
//! be right, and so has what is evicted and loaded again.

use lanefs_ext4::{MountOptions, NameCachePolicy, OneLockCache, Policies};
use std::sync::Arc;

/// Memory for caches with which hardly anything stays that is not held or dirty.
const LITTLE: u64 = 96 << 10;

/// What each policy may be instead of the default.
const OTHERS: [&str; 8] = [
    "inode_claim=two-step",
    "placement=shared",
    "busy_group=wait",
    "stream_goal=global",
    "stream_goal=hashed",
    "group_search=scan",
    "overwrite=exclusive",
    "name_cache=global",
];

/// How a run of `seed` mounts: of five one with the policies of before, names and inodes behind one
/// lock included, and one with some of them; of seven two with hardly any memory. Suites choose their
/// images by the seed too, by threes and fours.
pub fn mount_options(seed: u64) -> MountOptions {
    let policies = match seed % 5 {
        2 => Policies::before(),
        3 => mixed(seed),
        _ => Policies::default(),
    };
    let mut options = MountOptions { policies, ..MountOptions::default() };
    if policies.name_cache == NameCachePolicy::Global {
        options.names = Arc::new(OneLockCache::new(4096));
    }
    if matches!(seed % 7, 2 | 4) {
        options.cache_bytes = LITTLE;
    }
    options
}

/// About every other one of [`OTHERS`].
fn mixed(seed: u64) -> Policies {
    let mut rng = fastrand::Rng::with_seed(seed);
    let some: Vec<&str> = OTHERS.into_iter().filter(|_| rng.bool()).collect();
    some.join("+").parse().expect("policies that there are")
}
