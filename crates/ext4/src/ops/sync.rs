//! fsync, fdatasync, sync.

use crate::attr::SyncMode;
use crate::error::Error;
use crate::flags;
use crate::fs::Fs;
use crate::object::inode::InodeRef;
use crate::policy::Access;
use lanefs_journal::{FlushMark, Tid};
use lanefs_lanes::sync::atomic::Ordering;

impl Fs {
    /// Makes the inode durable: its data, its attributes and, as ext4 users rely on, its new name.
    /// An error sticks: once a flush has failed nothing is promised any more.
    pub fn fsync(&self, inode: &InodeRef, mode: SyncMode) -> Result<(), Error> {
        if let Some(cause) = self.objects.journal.cause() {
            return Err(cause.into());
        }
        // Also if damage has made the mount read-only by now: what was done before is promised.
        let word = match mode {
            SyncMode::Full => &inode.synced_by,
            SyncMode::Data => &inode.data_synced_by,
        };
        let tid = Tid(word.load(Ordering::Acquire));
        if tid.0 != 0 && tid > self.objects.journal.durable() {
            self.objects.journal.commit_here(tid, &self.objects)?;
        }
        let mark = FlushMark(inode.flush_mark.load(Ordering::Acquire));
        Ok(self.objects.journal.flush_if_needed(mark)?)
    }

    /// After a change of the data or the size: durable by now, if the flag of chattr +S asks for that.
    ///
    /// # Errors
    /// The change was made, and it is not known whether it will last.
    pub(crate) fn obey_sync(&self, inode: &InodeRef) -> Result<(), Error> {
        match flags::is_synchronous(&inode.rights()) {
            true => self.fsync(inode, SyncMode::Data),
            false => Ok(()),
        }
    }

    /// After a change of names in `dirs`: durable by now, if one of them has the flag of chattr +D or +S.
    ///
    /// # Errors
    /// As [`Fs::obey_sync`].
    pub(crate) fn obey_dirsync(&self, dirs: &[&InodeRef]) -> Result<(), Error> {
        match dirs.iter().any(|dir| flags::has_synchronous_names(&dir.rights())) {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Makes everything that was done before the call durable.
    pub fn sync(&self) -> Result<(), Error> {
        if let Some(cause) = self.objects.journal.cause() {
            return Err(cause.into());
        }
        if self.objects.access == Access::ReadOnly {
            return Ok(());
        }
        match self.objects.journal.commit_here(self.objects.journal.running(), &self.objects) {
            // Closed meanwhile, which committed all there was.
            Err(lanefs_journal::Error::Stopped) => return Ok(()),
            committed => committed?,
        }
        Ok(self.objects.journal.flush_if_needed(self.objects.journal.last_write())?)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::mkfs::{Contents, MkfsOptions, mkfs};
    use crate::{Mount, MountOptions, NewInode, NewKind};
    use lanefs_device::{FaultyDevice, Operation, RamDevice};
    use lanefs_lanes::sync::Arc;
    use std::time::Duration;

    fn mounted() -> (Mount, Arc<FaultyDevice>) {
        let ram = RamDevice::create(64 << 20).expect("memory");
        let options = MkfsOptions { contents: Contents::Zeros, ..MkfsOptions::default() };
        mkfs(&ram, &options).expect("room for a file system");
        let device = Arc::new(FaultyDevice::new(Arc::new(ram), None));
        let options =
            MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
        (Mount::open(device.clone(), options).expect("a new file system"), device)
    }

    #[test]
    fn an_fsync_flushes_for_its_own_writes_even_if_the_inode_was_evicted_since() {
        let (mount, device) = mounted();
        let fs = mount.fs();
        let root = fs.root().expect("a root");
        let made = ["written", "clean"].map(|name| {
            fs.create(&root, name.as_bytes(), &regular()).expect("room for a file").ino()
        });
        fs.sync().expect("no fault");
        let flushes = |ino, flushed: u64, what: &str| {
            let before = device.count(Operation::Flush);
            let inode = fs.get(ino, None).expect("it has a name");
            fs.fsync(&inode, SyncMode::Full).expect("no fault");
            assert_eq!(device.count(Operation::Flush), before + flushed, "{what}");
        };
        // As an overwrite does within a tick of the clock: nothing is to be committed.
        fs.objects.note_data(&fs.get(made[0], None).expect("it has a name"));
        flushes(made[1], 0, "another file was written");
        let before = fs.objects.inodes.get(made[0]).expect("it is in memory");
        // The committer, whose work this is, has nothing to do.
        fs.objects.inodes.evict(usize::MAX, 1 << 20, fs.objects.journal.settled());
        assert!(fs.objects.inodes.get(made[0]).is_none(), "nobody holds it");
        flushes(made[0], 1, "its data is not durable");
        let again = fs.objects.inodes.get(made[0]).expect("it is in memory");
        assert!(!Arc::ptr_eq(&before, &again));
        flushes(made[0], 0, "it is durable now");
        drop(root);
        mount.close().expect("no fault");
    }

    fn regular() -> NewInode<'static> {
        NewInode { kind: NewKind::Regular, permissions: 0o644, umask: 0, uid: 0, gid: 0 }
    }
}
