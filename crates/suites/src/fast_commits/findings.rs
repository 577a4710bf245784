//! The counts of a workload and of its checked states.

use std::fmt;

/// How many commits a workload made, and how many states were checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The number of fast commits that the workload made.
    pub fast_commits: u64,
    /// The number of commits that the workload made.
    pub commits: u64,
    /// How many fsyncs ran a full commit instead of a fast commit, by reason.
    pub refused: Vec<(&'static str, u64)>,
    /// The number of states that Lanefs recovered.
    pub states: u64,
    /// The number of states with fast commits to replay.
    pub with_fast_commits: u64,
    /// The number of states that e2fsck replayed.
    pub by_e2fsck: u64,
    /// The number of states that the kernel replayed.
    pub by_kernel: u64,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} fast commits, {} commits; {} states, {} of them with fast commits; {} by e2fsck, \
             {} by the kernel",
            self.fast_commits,
            self.commits,
            self.states,
            self.with_fast_commits,
            self.by_e2fsck,
            self.by_kernel
        )
    }
}
