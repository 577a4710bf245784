//! Implements fsync, fdatasync and sync.

use crate::attr::SyncMode;
use crate::flags;
use crate::fs::Fs;
use crate::object::inode::InodeRef;
use crate::policy::{Access, Synchronous};
use lanefs_journal::{FlushMark, Tid};
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_plan::Error;

impl Fs {
    /// Makes the inode durable: its data and its attributes. If the inode got a new name, the name
    /// becomes durable too, since programs rely on that. An error is permanent: after a failed
    /// flush every later call fails.
    pub fn fsync(&self, inode: &InodeRef, mode: SyncMode) -> Result<(), Error> {
        self.objects.check_process()?;
        if let Some(cause) = self.objects.journal.cause() {
            return Err(cause.into());
        }
        // After damage has made the mount read-only, fsync is still permitted, because the changes
        // that were made before must become durable.
        let word = match mode {
            SyncMode::Full => &inode.synced_by,
            SyncMode::Data => &inode.data_synced_by,
        };
        let tid = Tid(word.load(Ordering::Acquire));
        let is_dirty = tid.0 != 0 && tid > self.objects.journal.durable();
        if is_dirty && !self.objects.fast_commit(inode, tid)? {
            self.objects.journal.commit_here(tid, &self.objects)?;
        }
        let mark = FlushMark(inode.flush_mark.load(Ordering::Acquire));
        Ok(self.objects.journal.flush_if_needed(mark)?)
    }

    /// Makes a change of an inode durable if the inode's flag (chattr +S) or the mount requires
    /// that. `mode` is [`SyncMode::Data`] if only the data and the size changed.
    ///
    /// # Errors
    /// After an error the change has been made, but it is unknown whether it would survive a crash.
    pub(crate) fn obey_sync(&self, inode: &InodeRef, mode: SyncMode) -> Result<(), Error> {
        match self.synchronous == Synchronous::All || flags::is_synchronous(&inode.rights()) {
            true => self.fsync(inode, mode),
            false => Ok(()),
        }
    }

    /// Makes a change of names in `dirs` durable if one of these directories has the flag of chattr
    /// +D or +S, or if the mount requires that.
    ///
    /// # Errors
    /// The errors are those of [`Fs::obey_sync`].
    pub(crate) fn obey_dirsync(&self, dirs: &[&InodeRef]) -> Result<(), Error> {
        let is_marked = |dir: &&InodeRef| flags::has_synchronous_names(&dir.rights());
        match self.synchronous != Synchronous::Marked || dirs.iter().any(is_marked) {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Makes durable all changes that were made before the call.
    pub fn sync(&self) -> Result<(), Error> {
        self.objects.check_process()?;
        if let Some(cause) = self.objects.journal.cause() {
            return Err(cause.into());
        }
        if self.objects.access == Access::ReadOnly {
            return Ok(());
        }
        match self.objects.journal.commit_here(self.objects.journal.running(), &self.objects) {
            // The journal was closed meanwhile, which committed everything.
            Err(lanefs_journal::Error::Stopped) => return Ok(()),
            committed => committed?,
        }
        Ok(self.objects.journal.flush_if_needed(self.objects.journal.last_write())?)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
