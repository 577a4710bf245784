//! How to mount.

use crate::{OneLockCache, Policies};
use lanefs_ondisk::{FileType, Ino};
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

/// Read-only or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written.
    ReadOnly,
    /// Everything goes.
    ReadWrite,
}

/// What to do about a log with transactions in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Replay it.
    Replay,
    /// Leave it (`norecovery`): the files are seen as they lie, and nothing can be written.
    Skip,
}

/// When a read sets the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atime {
    /// If it is older than the last change or than a day.
    Relatime,
    /// Never.
    Noatime,
    /// Always.
    Strict,
}

/// What a damaged structure found while running does to the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The operation fails; the rest goes on.
    Continue,
    /// The file system becomes read-only.
    ReadOnly,
}

impl DirId {
    /// A hash of `name` in this directory, for caches of names.
    #[inline]
    pub fn hash_of(self, name: &[u8]) -> u64 {
        // One word, and a name that brings its length along by itself.
        struct Key<'a>(u64, &'a [u8]);
        impl std::hash::Hash for Key<'_> {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                state.write_u64(self.0);
                state.write(self.1);
            }
        }
        lanefs_lanes::hash_of(&Key(u64::from(self.ino.0) << 32 | u64::from(self.generation), name))
    }
}

/// Tells a directory from any other, also from an earlier one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirId {
    /// The inode number.
    pub ino: Ino,
    /// Its generation.
    pub generation: u32,
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The inode.
    pub ino: Ino,
    /// Its type.
    pub file_type: FileType,
}

/// Hears of names, with the directory's operation lock held: exclusively for a change; shared for a
/// change of one block, whose guard is held too; shared for a look-up that missed. So what it keeps
/// is never older than the directory, and who sees a block changed finds its names changed here.
pub trait Names: Send + Sync {
    /// `name` in `dir` leads to `entry` from now on, or to nothing.
    fn publish(&self, dir: DirId, name: &[u8], entry: Option<Named>) {
        self.publish_read(dir, name, entry, &|| true);
    }
    /// As [`Names::publish`], by one who only read: unless `still`, asked where no publication of
    /// this name can come between, says that what was read has changed since. Whoever changes a
    /// name lets `still` say so first, and publishes then.
    fn publish_read(&self, dir: DirId, name: &[u8], entry: Option<Named>, still: &dyn Fn() -> bool);
    /// The directory is gone.
    fn forget(&self, dir: DirId);
    /// The cache that keeps inodes behind the same lock as names, if this is one: the mount then
    /// keeps its inodes there ([`NameCachePolicy::Global`](crate::NameCachePolicy)).
    fn one_lock(self: Arc<Self>) -> Option<Arc<OneLockCache>> {
        None
    }
}

/// Keeps no names.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn publish_read(&self, _: DirId, _: &[u8], _: Option<Named>, _: &dyn Fn() -> bool) {}
    fn forget(&self, _: DirId) {}
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
