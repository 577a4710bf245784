//! Counts the space and the inodes of users, groups and projects in the file system's quota files.
//!
//! Operations count nothing. For each inode that a transaction changes, the committer has two
//! records: one from before the transaction, and one from after it. In the same transaction, the
//! committer adds the difference to the usage of the inode's owners. So the quota files agree with
//! the inodes after every crash, and threads share no count.
//!
//! Operations only make sure that the owners have entries in the quota files. A new entry may need
//! blocks, which the committer cannot allocate ([`Ledger::promise`]).
//!
//! Limits are obeyed only if the options of the mount request it ([`limits`]). Then the threads
//! that work for an owner with limits share its counts.

mod limits;

pub(crate) use crate::quota::limits::{
    Counted, Fold, Held, Ledger, Owners, Wanted, entries, owners,
};

use crate::quota::limits::seconds;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::quota::{Kind, Usage, is_counted};
use lanefs_ondisk::{Block, Ino, inode as disk};
use lanefs_plan::Error;
use std::collections::{BTreeMap, HashSet};

// The quota files of a mount.

/// The quota files of a mount.
pub(crate) struct Quotas {
    ledgers: [Option<Ledger>; 3],
    /// The first inode number that is not reserved.
    first_ino: Ino,
    /// The orphans: inodes without links whose space the quota files still count. The record of an
    /// inode without links does not show whether the inode is an orphan or is free. Used by the
    /// committer, and at mount. [rank Load]
    unlinked: Mutex<HashSet<Ino>>,
}

impl Quotas {
    /// Creates the quotas with the file of each kind, in the order of [`Kind`].
    pub(crate) fn new(ledgers: [Option<Ledger>; 3], first_ino: Ino) -> Quotas {
        Quotas { ledgers, first_ino, unlinked: Mutex::new(Rank::Load, HashSet::new()) }
    }

    /// Returns the file of a kind.
    pub(crate) fn ledger(&self, kind: Kind) -> Option<&Ledger> {
        self.ledgers.get(kind.index())?.as_ref()
    }

    /// Returns all files.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.ledgers.iter().flatten()
    }

    /// Notes at mount that the quota files count this inode although it has no links.
    pub(crate) fn note_unlinked(&self, ino: Ino) {
        self.unlinked.lock().insert(ino);
    }

    /// Returns the owners whose entries a change of an inode concerns: one or two in each file.
    pub(crate) fn counting<'q>(
        &'q self,
        before: &'q Owners,
        after: &'q Owners,
    ) -> impl Iterator<Item = (&'q Ledger, u32)> {
        self.ledgers().flat_map(|ledger| {
            let kind = ledger.kind.index();
            let (old, new) = (before[kind], after[kind]);
            old.into_iter().chain(new.filter(|_| new != old)).map(move |id| (ledger, id))
        })
    }

    /// Reserves for an inode as much of `wanted` as the limits of all owners permit, and returns
    /// the reservation with its number of units.
    ///
    /// # Errors
    /// [`Error::OverQuota`] if the limits do not permit all wanted inodes, or do not permit even
    /// one of the wanted units.
    pub(crate) fn hold(
        &self,
        ino: Ino,
        owners: &Owners,
        wanted: Wanted,
    ) -> Result<(Vec<Held>, u64), Error> {
        let (mut all, mut units) = (Vec::new(), wanted.units);
        for ledger in self.ledgers() {
            let id = owners[ledger.kind.index()];
            let Some(limits) = id.and_then(|id| ledger.limits_of(id)) else { continue };
            let held = limits.hold(ino, Wanted { units, ..wanted }, seconds());
            let (held, fewer) = held.ok_or(Error::OverQuota)?;
            all.push(held);
            units = fewer;
        }
        all.iter_mut().for_each(|held| held.keep(units, wanted.unit));
        Ok((all, units))
    }

    /// Apply: updates the usage that is compared with limits, after a change of an inode. Only the
    /// committer changes the quota files.
    pub(crate) fn note_change(&self, ino: Ino, before: &Counted, after: &Counted) {
        if !self.is_counted(ino) {
            return;
        }
        for ledger in self.ledgers() {
            let kind = ledger.kind.index();
            let (old, new) = (before.owners[kind], after.owners[kind]);
            let change = |id: Option<u32>, less: Usage, more: Usage| {
                let Some(limits) = id.and_then(|id| ledger.limits_of(id)) else { return };
                if less != more {
                    limits.change(ino, less, more, seconds());
                }
            };
            if old == new {
                change(old, before.usage, after.usage);
            } else {
                change(old, before.usage, Usage::default());
                change(new, Usage::default(), after.usage);
            }
        }
    }

    /// Returns whether the quota files count this inode. The orphan file needs no check, because
    /// its space and its owner never change.
    fn is_counted(&self, ino: Ino) -> bool {
        is_counted(ino, self.first_ino, self.ledgers().map(|ledger| ledger.ino))
    }

    /// Committer: adds to `fold` the change of usage between the records `before` and `after` of an
    /// inode. `after` is `None` for an inode that was freed.
    pub(crate) fn count(
        &self,
        fold: &mut Fold,
        ino: Ino,
        before: Option<&disk::Inode>,
        after: Option<&disk::Inode>,
    ) {
        if !self.is_counted(ino) {
            return;
        }
        let mut unlinked = self.unlinked.lock();
        let was_unlinked = unlinked.remove(&ino);
        if let Some(before) = before.filter(|before| before.links > 0 || was_unlinked) {
            fold.subtract(before);
        }
        if let Some(after) = after {
            fold.add(after);
            if after.links == 0 {
                unlinked.insert(ino);
            }
        }
    }

    /// Committer: changes the quota files, and returns the images of the changed blocks.
    pub(crate) fn fold(&self, fold: Fold) -> BTreeMap<Block, Arc<[u8]>> {
        let mut images = BTreeMap::new();
        for ledger in self.ledgers() {
            ledger.fold(&fold, &mut images);
        }
        images
    }
}
