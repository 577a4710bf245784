//! Changes a mount to read-only and back, while it is used.

use super::open::Mount;
use crate::error::Error;
use crate::policy::{Access, OnError, Purpose};
use lanefs_lanes::sync::atomic::Ordering;

impl Mount {
    /// Makes the mount read-only, and the file system on the device clean, as after an unmount: all
    /// changes are at their final locations, and the log is empty. Operations in progress finish,
    /// or fail with [`Error::ReadOnly`]. A mount that is read-only already stays as it is.
    ///
    /// # Errors
    /// [`Error::Device`], or the error of an aborted journal. In both cases the file system needs
    /// recovery.
    ///
    /// # Locking
    /// The same as for `fsync`: the caller holds no lock and no handle.
    pub fn make_read_only(&self) -> Result<(), Error> {
        let objects = &self.fs.objects;
        let _growing = self.fs.growing.lock();
        if objects.is_read_only() {
            return Ok(());
        }
        objects.become_read_only();
        objects.drop_windows();
        objects.journal.pause(objects)?;
        self.mark_clean(true)
    }

    /// Makes the mount writable again after [`Mount::make_read_only`].
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if the file system was opened read-only, or became read-only after an
    /// error. [`Error::Device`], in which case the mount stays read-only.
    pub fn make_writable(&self) -> Result<(), Error> {
        let objects = &self.fs.objects;
        let _growing = self.fs.growing.lock();
        let is_new_damage =
            objects.superblock.has_met_errors() && objects.on_error == OnError::ReadOnly;
        if objects.access == Access::ReadOnly || objects.journal.is_aborted() || is_new_damage {
            return Err(Error::ReadOnly);
        }
        if objects.is_read_only() {
            // Before any change the superblock must say that the file system is in use, so that a
            // mount after a crash replays the log.
            self.mark_in_use(Purpose::Use)?;
            objects.journal.resume();
            objects.read_only.store(false, Ordering::Release);
        }
        Ok(())
    }
}
