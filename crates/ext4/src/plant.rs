//! Planted bugs: what the model checker's tests leave out to show that it would be missed.
//!
//! Without `--cfg shuttle` every function here is a constant, inlined.

/// A step of an operation that a test can leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Taking blocks under the hold of the guard under which they were found.
    BlocksTakenUnderGuard,
    /// Taking an inode number under the hold of the guard under which it was found.
    InodeTakenUnderGuard,
    /// Looking whether a name still leads to the inode that was locked.
    NameLookedAtAgain,
    /// Looking at a name's place again once the block's names are locked.
    PlaceLookedAtAgain,
    /// Telling the name cache of a change before anybody can see the changed block.
    PublishedUnderGuard,
    /// Telling the name cache of what was read only if the block is still the same.
    ReadStillLatest,
    /// Listing a directory in a transaction before lanes note what they change in it.
    ListedBeforeNoting,
    /// Folding what lanes noted into a directory before its image is saved from the next
    /// transaction.
    NotesFoldedFirst,
    /// Folding what lanes noted into a directory that is captured.
    NotesCaptured,
    /// The lock that keeps the shape of the tree while it is searched for loops.
    TopologyLock,
    /// Leaving an inode in memory that somebody holds.
    HoldsKeepInodes,
    /// Leaving an inode in memory that is not committed.
    DirtyInodesStay,
    /// Leaving an inode in memory to which a commit owes something.
    OwedInodesStay,
    /// Waiting for a cut to be durable before growing over it.
    GrowthSettles,
    /// Keeping freed blocks until the freeing is durable.
    FreesWait,
    /// Recording an inode without names.
    OrphanRecorded,
    /// Flushing the data at fsync.
    FsyncFlushes,
    /// Holding the operation lock, shared, until overwritten blocks are written.
    OverwriteHolds,
}

/// Whether the running test left `step` out.
#[cfg(not(shuttle))]
#[inline(always)]
pub(crate) fn left_out(_step: Step) -> bool {
    false
}

/// Whether the running test left `step` out.
#[cfg(shuttle)]
pub(crate) fn left_out(step: Step) -> bool {
    use lanefs_lanes::sync::unscheduled::LazyLock;
    static LEFT_OUT: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("LANEFS_LEAVE_OUT").ok());
    LEFT_OUT.as_ref().is_some_and(|left_out| *left_out == format!("{step:?}"))
}
