//! Counts of the checked states by kind. The counts are shared by all threads that check states.

use lanefs_device::Kept;
use lanefs_lanes::{Mutex, Rank};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// Counts of the checked states.
#[derive(Debug, Default, Clone)]
pub struct Findings {
    /// The number of workloads, and how many of these had little memory and slow flushes.
    pub workloads: (u64, u64),
    /// The number of operations of all workloads.
    pub ops: u64,
    /// The number of distinct states that Lanefs recovered, for each kind of state.
    pub kinds: BTreeMap<&'static str, u64>,
    /// The number of states with the same bytes as an earlier state. Such a state is checked again
    /// only if it has to keep more promises than the earlier one.
    pub repeated: u64,
    /// The number of distinct states that e2fsck checked after Lanefs recovered them. Unless the
    /// superblock was torn or the image has `mmp`, e2fsck also replayed the log in a copy of the
    /// state.
    pub checked: u64,
    /// The number of distinct states whose superblock was torn.
    pub torn_superblocks: u64,
    /// The number of states that have a torn superblock and no copy of it, so that the mount was
    /// refused.
    pub refused: u64,
}

impl Findings {
    /// Returns the number of distinct states that Lanefs recovered.
    pub fn states(&self) -> u64 {
        self.kinds.values().sum()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let (workloads, forgetful) = self.workloads;
        write!(
            f,
            "{} distinct crash states ({}) of {workloads} workloads ({} operations), {forgetful} of them with \
             little memory and slow flushes; {} by e2fsck too; {} met before; {} with a torn \
             superblock, {} of them without a copy and refused",
            self.states(),
            kinds.join(", "),
            self.ops,
            self.checked,
            self.repeated,
            self.torn_superblocks,
            self.refused,
        )
    }
}

/// The digests of checked states, and the counts.
pub struct Tally {
    seen: Mutex<HashSet<u64>>,
    findings: Mutex<Findings>,
    /// e2fsck checks one in this many distinct states.
    every: u64,
}

impl Tally {
    /// Creates an empty tally; e2fsck checks one in `every` distinct states.
    pub fn new(every: u64) -> Tally {
        let seen = Mutex::new(Rank::Bucket, HashSet::new());
        Tally { seen, findings: Mutex::new(Rank::Bucket, Findings::default()), every }
    }

    /// Returns the counts so far.
    pub fn findings(&self) -> Findings {
        self.findings.lock().clone()
    }

    /// Adds the digest of a state; returns whether the state is new.
    pub(super) fn meet(&self, digest: u64) -> bool {
        let new = self.seen.lock().insert(digest);
        self.findings.lock().repeated += u64::from(!new);
        new
    }

    /// Returns whether e2fsck must check the state. The choice depends only on the digest, so it is
    /// the same in each run.
    pub(super) fn is_for_e2fsck(&self, digest: u64) -> bool {
        digest.is_multiple_of(self.every)
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Findings)) {
        count(&mut self.findings.lock());
    }
}

/// Returns the kind of a state in words.
pub(super) fn kind(kept: Kept) -> &'static str {
    match kept {
        Kept::All => "with every write",
        Kept::None => "with flushed writes alone",
        Kept::Some { .. } => "with some writes",
        Kept::Torn { .. } => "with some and torn writes",
        Kept::Unended { .. } => "in a durable write",
    }
}

/// The kind of a state after a second crash.
pub(super) const AGAIN: &str = "after a second crash in the recovery";
