//! Changes a mount to read-only and back, while it is used.

use crate::mount::open::Mount;
use crate::object::inode::Inode;
use crate::policy::{Access, OnError, Purpose};
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_lanes::sync::{Arc, thread};
use lanefs_plan::Error;
use std::time::{Duration, Instant};

/// How long a change to read-only waits for the deletion of removed files.
const PATIENCE: Duration = Duration::from_secs(1);

impl Mount {
    /// Makes the mount read-only, and the file system on the device clean, as after an unmount: all
    /// changes are at their final locations, and the log is empty. Operations in progress finish,
    /// or fail with [`Error::ReadOnly`]. A mount that is already read-only stays as it is.
    ///
    /// # Errors
    /// [`Error::Busy`] if a removed file is open, as in mount(2), because its deletion would have
    /// to wait for the next mount. [`Error::Device`], or the error of an aborted journal; after
    /// these two the file system needs recovery.
    ///
    /// # Locking
    /// The same as for `fsync`: the caller holds no lock and no handle.
    pub fn make_read_only(&self) -> Result<(), Error> {
        let objects = &self.fs.objects;
        objects.check_process()?;
        let _growing = self.fs.growing.lock();
        if objects.is_read_only() {
            return Ok(());
        }
        self.await_deletions()?;
        objects.become_read_only();
        objects.drop_windows();
        objects.journal.pause(objects)?;
        self.mark_clean(true)
    }

    /// Waits until removed files are deleted. A FUSE kernel reports the last close of a file with a
    /// delay, and the deletion takes time too.
    ///
    /// # Errors
    /// [`Error::Busy`] if a removed file is still open after [`PATIENCE`].
    fn await_deletions(&self) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let nameless = self.fs.objects.inodes.nameless();
            // After a failed deletion, the inode is not held, but its orphan record stays.
            let is_left = |inode: &Arc<Inode>| {
                inode.holds.is_held_nameless() || inode.state.lock().orphan.is_some()
            };
            if !nameless.iter().any(is_left) {
                return Ok(());
            }
            if begun.elapsed() >= PATIENCE {
                let is_open = nameless.iter().any(|inode| inode.holds.is_held_nameless());
                return if is_open { Err(Error::Busy) } else { Ok(()) };
            }
            thread::sleep(PATIENCE / 100);
        }
    }

    /// Makes the mount writable again after [`Mount::make_read_only`].
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if the file system was opened read-only, or became read-only after an
    /// error. [`Error::Device`], in which case the mount stays read-only.
    pub fn make_writable(&self) -> Result<(), Error> {
        let objects = &self.fs.objects;
        objects.check_process()?;
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
