//! Ways to choose that can be set side by side: what is scalable, and what it took the place of.

/// How blocks and inodes are chosen. The default scales; the others are how it was done before,
/// kept so that one build can measure both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policies {
    /// How an inode number is claimed.
    pub inode_claim: InodeClaiming,
    /// Where new directories go, and searches that start afresh.
    pub placement: Placement,
    /// What a chooser does about a group that another one is using.
    pub busy_group: BusyGroup,
    /// Where the search for a large run starts when it cannot have its goal.
    pub stream_goal: StreamGoal,
}

/// How an inode number is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InodeClaiming {
    /// Found and taken under one hold of the group's guard.
    #[default]
    OneStep,
    /// Found under one hold, taken under another if it is still free, else searched again.
    TwoStep,
}

/// Where new directories go, and searches that start afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Into groups of the caller's lane, one after another.
    #[default]
    Lanes,
    /// Near the parent, for everybody.
    Shared,
}

/// What a chooser does about a group that another one is using.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BusyGroup {
    /// It tries the next; only the last pass waits.
    #[default]
    Skip,
    /// It waits.
    Wait,
}

/// Where the search for a large run starts when it cannot have its goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamGoal {
    /// Behind the inode's own goal.
    #[default]
    Inode,
    /// Where the last large run of anybody was found: one number for the file system.
    Global,
}
