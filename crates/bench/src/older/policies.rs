//! The policies: their names and values.

use std::fmt::{self, Display};
use std::str::FromStr;

/// Policies of locking and allocation: those of Lanefs, or those of older kernels. The defaults are
/// those of Lanefs, and scale. All policies are correct; they differ in where data is placed and in
/// how long threads wait.
///
/// ```
/// use lanefs_bench::older::{Overwrite, Policies};
/// let mut policies: Policies = "before".parse()?;
/// policies.set("overwrite", "shared")?;
/// assert_eq!(policies, Policies { overwrite: Overwrite::Shared, ..Policies::before() });
/// # Ok::<(), lanefs_bench::older::UnknownPolicy>(())
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
    /// S5: how names and inodes in memory are found.
    pub name_cache: NameCachePolicy,
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
    /// With a shared lock; the times are set outside of the lock.
    #[default]
    Shared,
    /// With an exclusive lock; the times are set while the lock is held. The benchmark takes such a
    /// lock for each file around the library's write. Its waits are those of `Topology`.
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

    #[test]
    fn under_all_older_policies_threads_leave_a_clean_file_system() {
        use crate::library::{Library, Mounting};
        use crate::target_tree::{How, TargetTree};
        if ["mke2fs", "e2fsck"].into_iter().any(|name| crate::programs::program(name).is_none()) {
            println!("skipped: there is no mke2fs or e2fsck (package e2fsprogs)");
            return;
        }
        let image = tempfile::NamedTempFile::new().expect("a temporary file");
        crate::programs::make_image_with(image.path(), 64 << 20, &["-g", "2048"]).expect("room");
        let mut more = Policies::before();
        more.stream_goal = StreamGoal::Hashed;
        for (round, policies) in [Policies::before(), more].into_iter().enumerate() {
            let how = Mounting { policies, cache_bytes: Some(1 << 20), ..Mounting::default() };
            let library = Library::open(image.path(), how).expect("a mount");
            std::thread::scope(|s| {
                for me in 0..4 {
                    let library = &library;
                    s.spawn(move || {
                        let dir = format!("{round}-{me}");
                        library.make_dir(&dir).expect("room");
                        for n in 0..200 {
                            let path = format!("{dir}/{n}");
                            let file = library.open(&path, How::New).expect("room");
                            file.write_at(0, &[7; 9000]).expect("room");
                            drop(file);
                            match n % 4 {
                                0 => library.remove(&path).expect("it was made"),
                                1 => library.rename(&path, &format!("{path}-new")).expect("it is"),
                                _ => assert_eq!(library.stat(&path).expect("it was made"), 9000),
                            }
                            drop(library.make_unnamed(&dir).expect("room"));
                        }
                        assert_eq!(library.list(&dir).expect("it was made"), 150);
                    });
                }
            });
            drop(library);
            let check = std::process::Command::new("e2fsck").arg("-fn").arg(image.path()).output();
            let check = check.expect("e2fsck runs");
            assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
        }
    }
}
