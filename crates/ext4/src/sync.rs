//! fsync, fdatasync, sync.

use crate::fs::Fs;
use crate::inode::InodeRef;
use crate::plant::{Step, left_out};
use crate::{Access, Error, SyncMode};
use lanefs_journal::Tid;
use lanefs_lanes::sync::atomic::Ordering;

impl Fs {
    /// Makes the inode durable: its data, its attributes and, as ext4 users rely on, its new name.
    /// An error sticks: once a flush has failed nothing is promised any more.
    pub fn fsync(&self, inode: &InodeRef, mode: SyncMode) -> Result<(), Error> {
        if let Some(cause) = self.journal.cause() {
            return Err(cause.into());
        }
        // Also if damage has made the mount read-only by now: what was done before is promised.
        let word = match mode {
            SyncMode::Full => &inode.synced_by,
            SyncMode::Data => &inode.data_synced_by,
        };
        let tid = Tid(word.load(Ordering::Acquire));
        if tid.0 != 0 && tid > self.journal.durable() {
            self.journal.commit(tid)?;
        }
        if left_out(Step::FsyncFlushes) {
            return Ok(());
        }
        Ok(self.journal.flush_if_needed()?)
    }

    /// Makes everything that was done before the call durable.
    pub fn sync(&self) -> Result<(), Error> {
        if let Some(cause) = self.journal.cause() {
            return Err(cause.into());
        }
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        match self.journal.commit(self.journal.running()) {
            // Closed meanwhile, which committed all there was.
            Err(lanefs_journal::Error::Stopped) => return Ok(()),
            committed => committed?,
        }
        Ok(self.journal.flush_if_needed()?)
    }
}
