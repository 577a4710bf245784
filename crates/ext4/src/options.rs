//! The options of a mount, from `Mount::open` to their effect: the mounted file system keeps them.

use crate::alloc::{Allocation, Scaling};
use crate::attr::{Names, NoNames};
use crate::crypt::MasterKey;
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

/// Which changes are durable when the call returns, without an fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Changes of files that have the flag of chattr +S, and of directories that have the flag of
    /// +S or +D.
    #[default]
    Marked,
    /// The same as `Marked`, and also name changes in all directories, as with mount(8)'s
    /// `dirsync`.
    Names,
    /// All changes, as with mount(8)'s `sync`. All files and directories are treated as if they had
    /// the flag of chattr +S.
    All,
}

/// The purpose of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// Normal use: the superblock records the mount time and counts the mount.
    #[default]
    Use,
    /// The mount serves only to replay the log and finish the orphans, as e2fsck does. The
    /// superblock does not record such a mount.
    Recovery,
}

/// Whether a mount may change the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written.
    ReadOnly,
    /// All operations are permitted.
    ReadWrite,
}

/// What a mount does with a log that contains transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Replay the log.
    Replay,
    /// Ignore the log (`norecovery`): the mount shows the files as they are on the device, and is
    /// read-only.
    Skip,
}

/// Whether an fsync may write a fast commit instead of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FastCommitting {
    /// An fsync writes no fast commits, so that nothing that was synced can be lost if e2fsck
    /// replays the log.
    #[default]
    Never,
    /// Yes, if the file system has the feature `fast_commit` and no feature that prevents fast
    /// commits. After a crash, only Lanefs or the kernel may replay the log: e2fsck 1.47.0 drops
    /// the whole log if it has fast commits that are older than its last transaction. e2fsck does
    /// the same to logs that the kernel wrote.
    IfPossible,
}

/// When a read sets the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atime {
    /// Only if the access time is not newer than the last change, or is at least a day old.
    Relatime,
    /// Never.
    Noatime,
    /// Always.
    Strict,
}

/// What happens to the mount when an operation finds a damaged structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The operation fails; the mount continues.
    Continue,
    /// The file system becomes read-only.
    ReadOnly,
}
