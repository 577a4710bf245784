//! The options of a mount.

use crate::alloc::{Allocation, Scaling};
use crate::crypt::MasterKey;
use crate::names::{Names, NoNames};
use crate::policy::{Access, Atime, FastCommitting, OnError, Purpose, Recovery, Synchronous};
use lanefs_device::Device;
use lanefs_ondisk::quota::Kind;
use std::sync::Arc;
use std::time::Duration;

/// The options of a mount. [`MountOptions::default`] is read-write with the kernel's defaults.
#[derive(Clone)]
pub struct MountOptions {
    /// Whether changes are permitted. A read-only mount writes nothing: a dirty log is replayed in
    /// memory.
    pub access: Access,
    /// The device of the journal, if the journal is not on the device of the file system.
    pub journal: Option<Arc<dyn Device>>,
    /// Whether a dirty log is replayed. If not, the mount is read-only.
    pub recovery: Recovery,
    /// Whether the superblock records the mount.
    pub purpose: Purpose,
    /// When reads update the access time.
    pub atime: Atime,
    /// Whether an fsync may write a fast commit, if the file system has the feature `fast_commit`.
    pub fast_commits: FastCommitting,
    /// The longest time from a change to its commit.
    pub commit_interval: Duration,
    /// Which changes are durable when the call returns.
    pub synchronous: Synchronous,
    /// How the mount reacts when an operation finds a damaged structure.
    pub on_error: OnError,
    /// Whether freed blocks are discarded. They are discarded only after the commit that frees them
    /// is durable.
    pub discard: bool,
    /// Large allocations are aligned to stripes of this many blocks. 0 uses the stripe that the
    /// superblock or the device specifies.
    pub stripe: u32,
    /// The decisions of the allocators that determine how long threads wait for each other.
    pub allocation: Arc<dyn Allocation>,
    /// The most memory that the caches may take, in bytes.
    pub cache_bytes: u64,
    /// The kinds of owners whose quota limits are enforced. Usage is counted in any case.
    pub limits: Vec<Kind>,
    /// The master keys of encrypted directories.
    pub keys: Vec<MasterKey>,
    /// The name cache of the upper layer. It is notified when names are added or removed. Each
    /// mount needs a name cache of its own.
    pub names: Arc<dyn Names>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            access: Access::ReadWrite,
            journal: None,
            recovery: Recovery::Replay,
            purpose: Purpose::Use,
            atime: Atime::Relatime,
            fast_commits: FastCommitting::default(),
            commit_interval: lanefs_journal::Config::COMMIT_INTERVAL,
            synchronous: Synchronous::default(),
            on_error: OnError::ReadOnly,
            discard: false,
            stripe: 0,
            allocation: Arc::new(Scaling),
            cache_bytes: 256 << 20,
            limits: Vec::new(),
            keys: Vec::new(),
            names: Arc::new(NoNames),
        }
    }
}
