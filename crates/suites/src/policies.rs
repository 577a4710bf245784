//! Policies and memory sizes for the suites. The suites also test the older policies, which are no
//! longer defaults: measurements compare them with the defaults, so they must be correct. Runs with
//! little memory test that objects are evicted and loaded again.

use crate::home;
use lanefs_ext4::{MountOptions, NameCachePolicy, OneLockCache, Policies};
use std::sync::Arc;

/// A cache size in bytes that is so small that caches hold hardly anything except referenced and
/// dirty objects.
const LITTLE: u64 = 96 << 10;

/// All policy values that are not defaults.
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

/// Returns the mount options of a run with `seed`. One seed in five has all older policies
/// (including one lock for all names and inodes), and one in five has some of them. Two seeds in
/// seven have hardly any memory. Other functions make choices from the seed's remainders modulo
/// three and four. Five and seven have no factor in common with three and four, so the policies and
/// memory sizes occur in every combination with these choices.
pub fn mount_options(seed: u64) -> MountOptions {
    let policies = match seed % 5 {
        2 => Policies::before(),
        3 => mixed(seed),
        _ => Policies::default(),
    };
    let mut options = MountOptions { policies, ..home::options() };
    if policies.name_cache == NameCachePolicy::Global {
        options.names = Arc::new(OneLockCache::new(4096));
    }
    if matches!(seed % 7, 2 | 4) {
        options.cache_bytes = LITTLE;
    }
    options
}

/// Chooses each of [`OTHERS`] with probability one half.
fn mixed(seed: u64) -> Policies {
    let mut rng = fastrand::Rng::with_seed(seed);
    let some: Vec<&str> = OTHERS.into_iter().filter(|_| rng.bool()).collect();
    some.join("+").parse().expect("policies that there are")
}
