//! How to mount.

use crate::object::name_cache::{Names, NoNames};
use crate::policy::{Access, Atime, OnError, Policies, Recovery};
use std::sync::Arc;
use std::time::Duration;

/// How a file system is mounted. [`MountOptions::default`] is read-write with the kernel's defaults.
#[derive(Clone)]
pub struct MountOptions {
    /// Whether anything may be changed. Read-only writes not one byte: a dirty log is replayed in memory.
    pub access: Access,
    /// Whether a dirty log is replayed; skipping it forces read-only.
    pub recovery: Recovery,
    /// When reads are recorded.
    pub atime: Atime,
    /// The longest time from a change to its commit.
    pub commit_interval: Duration,
    /// What a damaged structure found while running does.
    pub on_error: OnError,
    /// Blocks that large allocations are aligned to; 0: as the superblock or the device says.
    pub stripe: u32,
    /// How it is done what the seeds changed.
    pub policies: Policies,
    /// How much memory the caches may take, in bytes.
    pub cache_bytes: u64,
    /// Who hears of names as they come and go; the name cache above.
    pub names: Arc<dyn Names>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            access: Access::ReadWrite,
            recovery: Recovery::Replay,
            atime: Atime::Relatime,
            commit_interval: Duration::from_secs(5),
            on_error: OnError::ReadOnly,
            stripe: 0,
            policies: Policies::default(),
            cache_bytes: 256 << 20,
            names: Arc::new(NoNames),
        }
    }
}
