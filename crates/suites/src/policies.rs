//! All policies and little memory under the same suites: the older policies are measured, so they
//! have to be correct, and so does eviction and loading again.

use lanefs_ext4::{MountOptions, NameCachePolicy, OneLockCache, Policies};
use std::sync::Arc;

/// Memory for caches that holds hardly anything but referenced and dirty objects.
const LITTLE: u64 = 96 << 10;

/// The values of the policies other than the default.
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

/// The mount options of a run of `seed`. Of five seeds, one has all older policies, names and
/// inodes behind one lock included, and one has some of them. Of seven seeds, two have hardly any
/// memory. Suites also choose their images by the seed, by threes and fours.
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
