//! Mounts and unmounts file systems, and decides the order of a mount's checks and of an unmount's
//! steps.

use crate::clock::now;
use crate::fs::Fs;
use crate::mount::load::load;
use crate::mount::log;
use crate::mount::mmp::Exclusive;
use crate::mount::options::MountOptions;
use crate::mount::orphans::{finish_orphans, orphans_left};
use crate::mount::primary::Primary;
use crate::mount::quotas::keep_quotas;
use crate::object::inode::Inode;
use crate::object::mount_ref::LaneRefs;
use crate::object::objects::Objects;
use crate::object::superblock::SUPERBLOCK;
use crate::policy::{Access, Purpose};
use lanefs_device::Device;
use lanefs_lanes::sync::{Arc, thread};
use lanefs_ondisk::superblock::{OrphanEntries, Recovery as NeedsRecovery, State, Superblock};
use lanefs_ondisk::{Corruption, FileType, Ino, inode as disk};
use lanefs_plan::Error;

/// A mounted file system and the thread that commits its transactions.
///
/// Dropping a mount does the same as [`Mount::close`], but cannot report an error.
pub struct Mount {
    lanes: Option<LaneRefs<Inode>>,
    pub(super) fs: Arc<Fs>,
    committer: Option<thread::JoinHandle<()>>,
    /// The state of the file system when it was mounted, e.g. clean, or with errors. The unmount
    /// never stores a better state than this one.
    pub(super) found: State,
    /// The right to write, if the file system has `mmp`. It is given up after all writes, since the
    /// fields are dropped after [`Mount::drop`].
    _exclusive: Option<Exclusive>,
}

impl Mount {
    /// Opens the file system on `device`: checks it, replays its log, and finishes its orphans.
    ///
    /// A read-only mount writes nothing: a dirty log is replayed in memory. A file system with
    /// features that permit only reading is mounted read-only, whatever the options request.
    pub fn open(device: Arc<dyn Device>, options: MountOptions) -> Result<Mount, Error> {
        let journal = options.journal.as_ref();
        let primary = Primary::read_with(&*device, journal)?;
        let exclusive = log::take_mmp(&device, &primary.superblock, &options)?;
        let (device, primary) = match &exclusive {
            None => (device, primary),
            // The superblock is read again: another computer may have unmounted the file system
            // since the first read.
            Some(exclusive) => (exclusive.device(), Primary::read_with(&*device, journal)?),
        };
        let opened = log::open(device, primary, &options)?;
        let access = opened.access;
        let has_mmp = opened.superblock.mmp_block().is_some();
        if access == Access::ReadWrite && exclusive.is_none() && has_mmp {
            // The superblock in the log has the feature `mmp`, unlike the superblock on the device,
            // so the mount starts again.
            return Mount::open(opened.device, options);
        }
        let aborted = opened.log.as_ref().is_some_and(|log| log.superblock.errno() != 0);
        let fs = load(opened, &options)?;
        let lanes = LaneRefs::new(&fs.objects.mount, &fs);
        check_root(&fs)?;
        let found = fs.objects.superblock.snapshot().state();
        let mut mount =
            Mount { lanes: Some(lanes), fs, committer: None, found, _exclusive: exclusive };
        if access == Access::ReadWrite {
            if aborted {
                mount.found |= State::ERROR;
            }
            keep_quotas(&mount.fs.objects, &options.limits)?;
            mount.mark_in_use(options.purpose)?;
            if aborted {
                mount.fs.objects.journal.forget_abort()?;
            }
            mount.begin_writing()?;
        }
        Ok(mount)
    }

    /// Returns the operations.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Marks the file system as in use, durably.
    pub(super) fn mark_in_use(&self, purpose: Purpose) -> Result<(), Error> {
        let objects = &self.fs.objects;
        let orphan_file = objects.superblock.snapshot().orphan_file();
        let (now, found) = (seconds(), self.found);
        write_superblock(objects, |superblock| {
            if purpose == Purpose::Use {
                superblock.set_mount_time(now);
                superblock.set_mount_count(superblock.mount_count().saturating_add(1));
            }
            superblock.set_write_time(now);
            // A mount that becomes writable again keeps the record of errors that it has met.
            let found = found | superblock.state() & State::ERROR;
            if superblock.journal().is_some() {
                let orphans = match orphan_file {
                    Some(_) => OrphanEntries::Present,
                    None => OrphanEntries::Absent,
                };
                superblock.set_dirty_features(NeedsRecovery::Needed, orphans);
                superblock.set_state(found);
            } else {
                // Without a journal, only the superblock's state can record that the file system is
                // in use.
                superblock.set_state(found - State::VALID);
            }
        })
    }

    /// Starts the committer, and finishes the orphans of the last mount.
    fn begin_writing(&mut self) -> Result<(), Error> {
        let fs = self.fs.clone();
        let superblock = fs.objects.superblock.snapshot();
        let serving = fs.clone();
        let committer = thread::Builder::new()
            .name("lanefs-commit".into())
            .spawn(move || serving.objects.journal.serve(&serving.objects))
            .map_err(|_| Error::Busy)?;
        self.committer = Some(committer);
        // The error is noted, so that closing this mount records it in the superblock.
        finish_orphans(&fs.objects, superblock.orphan_file(), superblock.last_orphan())
            .inspect_err(|error| fs.objects.note_error(error))
    }

    /// Commits, writes all block images to their final locations, and marks the file system clean.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        let Some(committer) = self.committer.take() else { return Ok(()) };
        let objects = &self.fs.objects;
        if let Err(error) = objects.check_process() {
            // The committer runs in the parent process, which also unmounts. Nothing is freed here,
            // because the parent's other threads may have had locks at the fork.
            std::mem::forget((committer, self.fs.clone(), self.lanes.take()));
            return Err(error);
        }
        objects.drop_windows();
        let stopped = objects.journal.stop();
        let ended = committer.join();
        let was_read_only = objects.is_read_only();
        objects.become_read_only();
        stopped?;
        if ended.is_err() {
            return Err(Error::Busy);
        }
        self.mark_clean(!was_read_only)
    }

    /// Marks the file system as unmounted, durably. Without a journal, a file system that was clean
    /// when it was mounted is marked as clean again only if `is_whole`, i.e. if the mount was
    /// writable until now.
    pub(super) fn mark_clean(&self, is_whole: bool) -> Result<(), Error> {
        let (objects, found) = (&self.fs.objects, self.found);
        let orphans_left = orphans_left(objects);
        let (blocks, inodes) = objects.groups.free_counts();
        write_superblock(objects, |superblock| {
            superblock.set_write_time(seconds());
            superblock.set_free_blocks(blocks);
            superblock.set_free_inodes(u32::try_from(inodes).unwrap_or(u32::MAX));
            superblock.set_dirty_features(NeedsRecovery::NotNeeded, orphans_left);
            if is_whole && superblock.journal().is_none() {
                superblock.set_state(superblock.state() | (found & State::VALID));
            }
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The error cannot be reported; data that was synced with fsync is in the log in any case.
        let _ = self.shut_down();
        // From here on the deletion of a nameless inode is left to the next mount.
        self.lanes = None;
    }
}

/// Writes the superblock outside of the journal, durably.
fn write_superblock(objects: &Objects, change: impl FnOnce(&mut Superblock)) -> Result<(), Error> {
    let (device, block) = (&objects.volume.device, objects.superblock.update(change));
    let at = SUPERBLOCK.start % block.len();
    let bytes = &block[at..at + SUPERBLOCK.len()];
    device.write_at(SUPERBLOCK.start as u64, bytes)?;
    Ok(objects.journal.flush_all(objects)?)
}

/// Fails if the root is not a directory, or has no blocks; the kernel refuses such a root too.
fn check_root(fs: &Arc<Fs>) -> Result<(), Error> {
    let attr = fs.root()?.attr();
    let (kind, size, sectors) = (attr.file_type, attr.size, attr.sectors);
    let flags = disk::InodeFlags::from_bits_retain(attr.flags);
    let is_inline = flags.contains(disk::InodeFlags::INLINE_DATA);
    if kind != FileType::Directory || size == 0 || (sectors == 0 && !is_inline) {
        let cause = disk::Cause::NotARoot { kind, size, sectors };
        return Err(Corruption::Inode { ino: Ino::ROOT, cause }.into());
    }
    Ok(())
}

fn seconds() -> u64 {
    now().secs.try_into().unwrap_or(0)
}
