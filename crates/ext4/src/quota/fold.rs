//! The changes of usage in one transaction.

use super::counted::owners;
use lanefs_ondisk::inode as disk;
use lanefs_ondisk::quota::{Kind, Usage};
use std::collections::BTreeMap;

/// Collects the changes that a transaction makes to the usage of each owner.
#[derive(Default)]
pub(crate) struct Fold {
    /// The ids for which the transaction adds an entry.
    new: Vec<(Kind, u32)>,
    changes: BTreeMap<(usize, u32), Change>,
}

/// The change of one owner's usage; negative if the usage decreases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Change {
    bytes: i128,
    inodes: i64,
}

impl Fold {
    /// Notes that the transaction adds an entry for an id, unless the id has one.
    pub(crate) fn add_owner(&mut self, kind: Kind, id: u32) {
        self.new.push((kind, id));
    }

    pub(super) fn add(&mut self, disk: &disk::Inode) {
        self.change(disk, 1);
    }

    pub(super) fn subtract(&mut self, disk: &disk::Inode) {
        self.change(disk, -1);
    }

    fn change(&mut self, disk: &disk::Inode, sign: i64) {
        for (kind, id) in owners(disk).into_iter().enumerate() {
            let Some(id) = id else { continue };
            let change = self.changes.entry((kind, id)).or_default();
            change.inodes += sign;
            change.bytes += i128::from(sign) * i128::from(disk.sectors) * 512;
        }
    }

    /// Returns the ids of a kind that were given to [`Fold::add_owner`].
    pub(super) fn new_owners(&self, kind: Kind) -> impl Iterator<Item = u32> {
        self.new.iter().filter(move |(of, _)| *of == kind).map(|(_, id)| *id)
    }

    /// Returns the owners of a kind whose usage changes, each with the change of its usage.
    pub(super) fn changes(&self, kind: Kind) -> impl Iterator<Item = (u32, Change)> {
        let all = (kind.index(), 0)..=(kind.index(), u32::MAX);
        let changed = |(_, change): &(_, &Change)| **change != Change::default();
        self.changes.range(all).filter(changed).map(|(&(_, id), change)| (id, *change))
    }
}

impl Change {
    /// Returns the usage after the change. If the usage on disk was too small, the result is 0
    /// instead of a negative number.
    pub(super) fn of(&self, usage: Usage) -> Usage {
        let bytes = (i128::from(usage.bytes) + self.bytes).clamp(0, i128::from(u64::MAX));
        Usage { bytes: bytes as u64, inodes: usage.inodes.saturating_add_signed(self.inodes) }
    }
}
