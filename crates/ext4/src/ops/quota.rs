//! Reports usage and limits of users, groups and projects, and sets limits.

use crate::fs::Fs;
use crate::object::dirty::Dirty;
use crate::quota::{Ledger, Owners, entries};
use lanefs_ondisk::quota::{Kind, Limits, Quota};
use lanefs_plan::Error;

/// The entries of one quota file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaReport {
    /// The kind of the owners.
    pub kind: Kind,
    /// For how many seconds soft limits of space may be exceeded.
    pub bytes_grace: u32,
    /// For how many seconds soft limits of inodes may be exceeded.
    pub inodes_grace: u32,
    /// The owners' ids with their entries, in ascending order of the ids.
    pub entries: Vec<(u32, Quota)>,
}

impl QuotaReport {
    fn of(ledger: &Ledger) -> QuotaReport {
        ledger.with_file(|file| {
            let (bytes_grace, inodes_grace) = file.grace();
            QuotaReport { kind: ledger.kind, bytes_grace, inodes_grace, entries: entries(file) }
        })
    }
}

impl Fs {
    /// Returns the entries of each quota file as of the last commit. The result is empty if the
    /// file system has no quota files.
    pub fn quotas(&self) -> Result<Vec<QuotaReport>, Error> {
        if let Some(quotas) = self.objects.mount.quotas() {
            return Ok(quotas.ledgers().map(QuotaReport::of).collect());
        }
        let ledgers = self.objects.read_quotas()?;
        Ok(ledgers.iter().flatten().map(QuotaReport::of).collect())
    }

    /// Sets the limits of an owner, durably. A mount with [`limits`](crate::MountOptions::limits)
    /// obeys them immediately if the owner already had limits when the file system was mounted.
    /// Otherwise they are obeyed from the next mount on.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the file system has no quota file of this kind.
    pub fn set_quota(&self, kind: Kind, id: u32, limits: Limits) -> Result<(), Error> {
        self.objects.check_writable()?;
        let ledger = self.objects.mount.quotas().and_then(|quotas| quotas.ledger(kind));
        let ledger = ledger.ok_or(Error::NotSupported)?;
        let mut owners: Owners = [None; 3];
        owners[kind.index()] = Some(id);
        self.objects.know_owners(&owners)?;
        // If the owner is new, this commit adds the owner's entry to the quota file.
        self.sync()?;
        let mut handle = self.objects.join(1)?;
        handle.charge(1);
        handle.dirty(Dirty::NewOwner(kind, id));
        ledger.set_limits(id, limits);
        drop(handle);
        self.sync()
    }
}
