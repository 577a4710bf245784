//! Policies of locking and allocation: the scalable ones, and those of older kernels.

use std::fmt::{self, Display};
use std::str::FromStr;

/// Locking and allocation policies: the present ones, or those of older kernels, for comparison in
/// one build (`docs/seeds.md`). The defaults scale. All are correct; they differ in how long
/// threads wait.
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
    /// S1: where new directories are placed, and where a search without a goal starts.
    pub placement: Placement,
    /// S2: the reaction to a group that another thread is using.
    pub busy_group: BusyGroup,
    /// S2: where the search for blocks of a large file starts if its goal has no room.
    pub stream_goal: StreamGoal,
    /// S2: how a group with room is found.
    pub group_search: GroupSearch,
    /// S3: how a write locks the inode whose data it overwrites.
    pub overwrite: Overwrite,
    /// S5: how names and inodes in memory are found. Used by the front ends that cache names; ext4
    /// itself caches no names.
    pub name_cache: NameCachePolicy,
}

/// Which changes are durable when the call returns, without an fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Changes of files with the flag of chattr +S, and of directories with +S or +D.
    #[default]
    Marked,
    /// Also changes of names in all directories, as with mount(8)'s `dirsync`.
    Names,
    /// All changes, as if all files and directories had the flag of chattr +S, as with mount(8)'s
    /// `sync`.
    All,
}

/// The purpose of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// To use the file system: the time of the last mount and the number of mounts change.
    #[default]
    Use,
    /// Only to replay the log and finish the orphans, as e2fsck does: the superblock does not
    /// record the mount.
    Recovery,
}

/// How an inode number is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InodeClaiming {
    /// The number is found and taken under one hold of the group's guard.
    #[default]
    OneStep,
    /// The number is found under one hold of the guard, and taken under another hold if it is still
    /// free; otherwise the search is repeated.
    TwoStep,
}

/// Where new directories are placed, and where a search without a goal starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Directories spread over groups; callers that use one group at the same time are moved apart.
    #[default]
    Lanes,
    /// New directories are placed near their parents, in the same way for all lanes.
    Shared,
}

/// The reaction to a group that another thread is using.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BusyGroup {
    /// The search tries the next group; only the last pass waits.
    #[default]
    Skip,
    /// The search waits.
    Wait,
}

/// Where the search for blocks of a large file starts if its goal has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamGoal {
    /// After the inode's own goal.
    #[default]
    Inode,
    /// Where the last large file found blocks: one position for the whole file system.
    Global,
    /// Like `Global`, but with one position for each processor (at most one for each four groups).
    /// The inode's number selects the position, as in Linux 6.17.
    Hashed,
}

/// How a group with room is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupSearch {
    /// By an index: in a few steps, for any number of groups.
    #[default]
    Index,
    /// By a scan, one group after another.
    Scan,
}

/// How a write locks the inode whose data it overwrites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// With a shared lock. A write that covers only a part of a block of the device or of an
    /// unwritten block, or finds too few free blocks, starts again with an exclusive lock. The
    /// times are set outside of the lock.
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
    /// Names, inodes and both LRU lists are behind one lock.
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

/// All policies by name, with their values: the default first, then the older one.
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

    /// Parses `before`, `after`, or policies that differ from the default, like
    /// `overwrite=exclusive`, separated by `+`.
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

/// The treatment of a log that contains transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Replay the log.
    Replay,
    /// Ignore the log (`norecovery`): the files have their state on the device, and the mount is
    /// read-only.
    Skip,
}

/// Whether an fsync may write a fast commit instead of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FastCommitting {
    /// No. So nothing that was synced is lost if e2fsck replays the log.
    #[default]
    Never,
    /// Yes, if the file system has the feature `fast_commit` and no other that prevents it. After a
    /// crash, only Lanefs or the kernel may replay the log: e2fsck 1.47.0 drops the whole log if it
    /// has fast commits that are older than its last transaction. It does the same to logs that the
    /// kernel wrote.
    IfPossible,
}

/// When a read sets the access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atime {
    /// If the access time is older than the last change or than one day.
    Relatime,
    /// Never.
    Noatime,
    /// Always.
    Strict,
}

/// The effect on the mount of a damaged structure that an operation finds.
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
