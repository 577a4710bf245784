//! Policies of locking and allocation: the scalable ones, and those of older kernels.

use std::fmt::{self, Display};
use std::str::FromStr;

/// Locking and allocation policies: the present ones, or those of older kernels, for comparison in
/// one build (`docs/seeds.md`, which also explains S1 to S5). The defaults scale. All policies are
/// correct; they differ in where data is placed and in how long threads wait.
///
/// ```
/// use lanefs_ext4::{Overwrite, Policies};
/// let mut policies: Policies = "before".parse()?;
/// policies.set("overwrite", "shared")?;
/// assert_eq!(policies, Policies { overwrite: Overwrite::Shared, ..Policies::before() });
/// # Ok::<(), lanefs_ext4::UnknownPolicy>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policies {
    /// S1: how an inode number is claimed.
    pub inode_claim: InodeClaiming,
    /// S1: where new directories are placed, and whether callers in the same group are separated.
    pub placement: Placement,
    /// S2: the reaction to a group that another thread is using.
    pub busy_group: BusyGroup,
    /// S2: where the search for blocks of a large file starts if there is no room at the file's
    /// goal.
    pub stream_goal: StreamGoal,
    /// S2: how a group with room is found.
    pub group_search: GroupSearch,
    /// S3: how a write locks the inode whose data it overwrites.
    pub overwrite: Overwrite,
    /// S5: how names and inodes in memory are found. This policy is for the front ends, which cache
    /// names; ext4 itself caches no names.
    pub name_cache: NameCachePolicy,
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

/// How an inode number is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InodeClaiming {
    /// The guard of the group is taken once: the number is found and claimed under the same hold.
    #[default]
    OneStep,
    /// The guard is taken twice: first to find the number, and then to take it if it is still free.
    /// If it is not, the search is repeated.
    TwoStep,
}

/// Where new directories are placed, and whether callers in the same group are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// New directories are spread over the groups, and callers that use one group at the same time
    /// are moved to different groups.
    #[default]
    Lanes,
    /// New directories are placed near their parents, and callers that use one group at the
    /// same time stay in it.
    Shared,
}

/// The reaction to a group that another thread is using.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BusyGroup {
    /// The search tries the next group; only the last pass waits.
    #[default]
    Skip,
    /// The search waits for the group.
    Wait,
}

/// Where the search for blocks of a large file starts if there is no room at the file's goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamGoal {
    /// In the group after the group of the file's goal.
    #[default]
    Inode,
    /// Where the last large file found blocks: one position for the whole file system.
    Global,
    /// Like `Global`, but with one position for each processor (at most one for every four groups).
    /// The inode's number selects the position, as in Linux 6.17.
    Hashed,
}

/// How a group with room is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupSearch {
    /// An index finds the group in a few steps, whatever the number of groups.
    #[default]
    Index,
    /// A scan looks at one group after another.
    Scan,
}

/// How a write locks the inode whose data it overwrites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// With a shared lock. A write starts again with an exclusive lock if it covers only a part of
    /// a device block, of an encrypted block or of an unwritten block, or if it finds too few free
    /// blocks. The times are set outside of the lock.
    #[default]
    Shared,
    /// With an exclusive lock; the times are set while the lock is held.
    Exclusive,
}

/// How names and inodes in memory are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameCachePolicy {
    /// Look-ups take no lock; changes lock a bucket; eviction removes entries of the bucket that
    /// needs room.
    #[default]
    Lanes,
    /// One lock protects the names, the inodes, and an LRU list of each.
    Global,
}

/// The error for a policy that does not exist, or for a value that a policy does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// The name of the policy.
    pub name: String,
    /// The value; empty if it was not given.
    pub value: String,
}

impl std::error::Error for UnknownPolicy {}

/// Lists the valid names or values.
impl Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnknownPolicy { name, value } = self;
        match NAMED.iter().find(|(known, _)| known == name) {
            Some((_, values)) if value.is_empty() => {
                write!(f, "policy {name} is one of {}", values.join(", "))
            }
            Some((_, values)) => {
                write!(f, "policy {name} is one of {}, not '{value}'", values.join(", "))
            }
            None => {
                write!(f, "no such policy: '{name}'; there are before, after")?;
                NAMED
                    .iter()
                    .try_for_each(|(name, values)| write!(f, ", {name}={}", values.join("|")))
            }
        }
    }
}

/// The name of each policy, and the names of its values: the default is first, and the older value
/// is second.
const NAMED: [(&str, &[&str]); 7] = [
    ("inode_claim", &["one-step", "two-step"]),
    ("placement", &["lanes", "shared"]),
    ("busy_group", &["skip", "wait"]),
    ("stream_goal", &["inode", "global", "hashed"]),
    ("group_search", &["index", "scan"]),
    ("overwrite", &["shared", "exclusive"]),
    ("name_cache", &["lanes", "global"]),
];

impl Policies {
    /// Returns the older value of every policy.
    pub fn before() -> Policies {
        Policies {
            inode_claim: InodeClaiming::TwoStep,
            placement: Placement::Shared,
            busy_group: BusyGroup::Wait,
            stream_goal: StreamGoal::Global,
            group_search: GroupSearch::Scan,
            overwrite: Overwrite::Exclusive,
            name_cache: NameCachePolicy::Global,
        }
    }

    /// Sets the policy with this name, as in `overwrite=exclusive`.
    ///
    /// # Errors
    /// [`UnknownPolicy`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), UnknownPolicy> {
        match (name, value) {
            ("inode_claim", "one-step") => self.inode_claim = InodeClaiming::OneStep,
            ("inode_claim", "two-step") => self.inode_claim = InodeClaiming::TwoStep,
            ("placement", "lanes") => self.placement = Placement::Lanes,
            ("placement", "shared") => self.placement = Placement::Shared,
            ("busy_group", "skip") => self.busy_group = BusyGroup::Skip,
            ("busy_group", "wait") => self.busy_group = BusyGroup::Wait,
            ("stream_goal", "inode") => self.stream_goal = StreamGoal::Inode,
            ("stream_goal", "global") => self.stream_goal = StreamGoal::Global,
            ("stream_goal", "hashed") => self.stream_goal = StreamGoal::Hashed,
            ("group_search", "index") => self.group_search = GroupSearch::Index,
            ("group_search", "scan") => self.group_search = GroupSearch::Scan,
            ("overwrite", "shared") => self.overwrite = Overwrite::Shared,
            ("overwrite", "exclusive") => self.overwrite = Overwrite::Exclusive,
            ("name_cache", "lanes") => self.name_cache = NameCachePolicy::Lanes,
            ("name_cache", "global") => self.name_cache = NameCachePolicy::Global,
            _ => return Err(UnknownPolicy { name: name.into(), value: value.into() }),
        }
        Ok(())
    }
}

impl FromStr for Policies {
    type Err = UnknownPolicy;

    /// Parses words separated by `+`. A word like `overwrite=exclusive` sets one policy; `before`
    /// sets all policies to their older values, and `after` to their default values. A policy that
    /// no word sets has its default value.
    fn from_str(text: &str) -> Result<Policies, UnknownPolicy> {
        let mut policies = Policies::default();
        for word in text.split('+').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((name, value)) => policies.set(name, value)?,
                None if word == "before" => policies = Policies::before(),
                None if word == "after" => policies = Policies::default(),
                None => policies.set(word, "")?,
            }
        }
        Ok(policies)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_named_one_by_one_or_together() {
        assert_eq!("after".parse(), Ok(Policies::default()));
        let all = "inode_claim=two-step+placement=shared+busy_group=wait+stream_goal=global\
                   +group_search=scan+overwrite=exclusive+name_cache=global";
        assert_eq!(all.parse(), Ok(Policies::before()));
        let mixed = "before+stream_goal=hashed+name_cache=lanes".parse::<Policies>();
        let wanted = Policies {
            stream_goal: StreamGoal::Hashed,
            name_cache: NameCachePolicy::Lanes,
            ..Policies::before()
        };
        assert_eq!(mixed, Ok(wanted));
    }

    #[test]
    fn an_unknown_policy_is_reported_with_the_valid_ones() {
        let said = |text: &str| text.parse::<Policies>().expect_err(text).to_string();
        assert_eq!(said("overwrite"), "policy overwrite is one of shared, exclusive");
        assert_eq!(said("overwrite="), "policy overwrite is one of shared, exclusive");
        let wrong = "policy stream_goal is one of inode, global, hashed, not 'maybe'";
        assert_eq!(said("before+stream_goal=maybe"), wrong);
        assert!(
            said("now").starts_with("no such policy: 'now'; there are before, after, inode_claim=")
        );
        assert!(said("speed=high").ends_with(", name_cache=lanes|global"));
    }

    #[test]
    fn every_policy_that_is_listed_is_understood() {
        let (mut defaults, mut before) = (Policies::before(), Policies::default());
        for (name, values) in NAMED {
            defaults.set(name, values[0]).unwrap();
            before.set(name, values[1]).unwrap();
            values.iter().for_each(|value| before.clone().set(name, value).unwrap());
        }
        assert_eq!((defaults, before), (Policies::default(), Policies::before()));
    }
}
