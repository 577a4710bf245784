//! The behaviours that a mount can choose.

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
