//! Mounts and unmounts file systems, and decides the order of a mount's checks and of an unmount's
//! steps.

use crate::alloc::{Groups, Reuse, Setup, stripe_of};
use crate::attr::now;
use crate::mount::find_log::{Primary, read_block};
use crate::mount::log;
use crate::mount::log::{Opened, finish_orphans, orphans_left};
use crate::mount::mmp::Exclusive;
use crate::object::fast_commits::FastCommits;
use crate::object::fs::{Fs, Pressure, bitmaps_within, images_within};
use crate::object::inode::{Inode, Inodes};
use crate::object::meta::MetaCache;
use crate::object::mount_ref::{LaneRefs, MountRef};
use crate::object::orphan::{Orphans, SUPERBLOCK, SuperState};
use crate::object::table::Tables;
use crate::options::{Access, FastCommitting, MountOptions, OnError, Purpose};
use crate::quota::Quotas;
use crate::verity::VerifiedBlocks;
use crate::volume::Volume;
use lanefs_device::Device;
use lanefs_journal::{Config, Journal};
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};
use lanefs_lanes::sync::{Arc, thread};
use lanefs_lanes::{Mutex, Padded, Rank};
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::jbd2::JournalIncompat;
use lanefs_ondisk::quota::Kind;
use lanefs_ondisk::superblock::{
    Geometry, OrphanEntries, Recovery as NeedsRecovery, State, Superblock,
};
use lanefs_ondisk::{Block, Corruption, FileType, Ino, Unsupported, inode as disk};
use lanefs_plan::Error;
use lanefs_plan::system::{SystemBlocks, descriptors};
use std::time::{Duration, Instant};

/// A mounted file system and the thread that commits its transactions.
///
/// Dropping a mount does the same as [`Mount::close`], but cannot report an error.
pub struct Mount {
    lanes: Option<LaneRefs<Inode>>,
    pub(crate) fs: Arc<Fs>,
    committer: Option<thread::JoinHandle<()>>,
    /// The state of the file system when it was mounted, e.g. clean, or with errors. The unmount
    /// never stores a better state than this one.
    pub(crate) found: State,
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
        let lanes = LaneRefs::new(&fs.mount, &fs);
        check_root(&fs)?;
        let found = fs.superblock.snapshot().state();
        let mut mount =
            Mount { lanes: Some(lanes), fs, committer: None, found, _exclusive: exclusive };
        if access == Access::ReadWrite {
            if aborted {
                mount.found |= State::ERROR;
            }
            keep_quotas(&mount.fs, &options.limits)?;
            mount.mark_in_use(options.purpose)?;
            if aborted {
                mount.fs.journal.forget_abort()?;
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
    pub(crate) fn mark_in_use(&self, purpose: Purpose) -> Result<(), Error> {
        let fs = &self.fs;
        let orphan_file = fs.superblock.snapshot().orphan_file();
        let (now, found) = (seconds(), self.found);
        write_superblock(fs, |superblock| {
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
        let superblock = fs.superblock.snapshot();
        let serving = fs.clone();
        let committer = thread::Builder::new()
            .name("lanefs-commit".into())
            .spawn(move || serving.journal.serve(&*serving))
            .map_err(|_| Error::Busy)?;
        self.committer = Some(committer);
        // The error is noted, so that closing this mount records it in the superblock.
        finish_orphans(&fs, superblock.orphan_file(), superblock.last_orphan())
            .inspect_err(|error| fs.note_error(error))
    }

    /// Commits, writes all block images to their final locations, and marks the file system clean.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        let Some(committer) = self.committer.take() else { return Ok(()) };
        let fs = &self.fs;
        if let Err(error) = fs.check_process() {
            // The committer runs in the parent process, which also unmounts. Nothing is freed here,
            // because the parent's other threads may have had locks at the fork.
            std::mem::forget((committer, self.fs.clone(), self.lanes.take()));
            return Err(error);
        }
        fs.drop_windows();
        let stopped = fs.journal.stop();
        let ended = committer.join();
        let was_read_only = fs.is_read_only();
        fs.become_read_only();
        stopped?;
        if ended.is_err() {
            return Err(Error::Busy);
        }
        self.mark_clean(!was_read_only)
    }

    /// Marks the file system as unmounted, durably. Without a journal, a file system that was clean
    /// when it was mounted is marked as clean again only if `is_whole`, i.e. if the mount was
    /// writable until now.
    pub(crate) fn mark_clean(&self, is_whole: bool) -> Result<(), Error> {
        let (fs, found) = (&self.fs, self.found);
        let orphans_left = orphans_left(fs);
        let (blocks, inodes) = fs.groups.free_counts();
        write_superblock(fs, |superblock| {
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
fn write_superblock(fs: &Fs, change: impl FnOnce(&mut Superblock)) -> Result<(), Error> {
    let (device, block) = (&fs.volume.device, fs.superblock.update(change));
    let at = SUPERBLOCK.start % block.len();
    let bytes = &block[at..at + SUPERBLOCK.len()];
    device.write_at(SUPERBLOCK.start as u64, bytes)?;
    Ok(fs.journal.flush_all(fs)?)
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

// Changes a mount to read-only and back, while it is used.

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
        let fs = &self.fs;
        fs.check_process()?;
        let _growing = self.fs.growing.lock();
        if fs.is_read_only() {
            return Ok(());
        }
        self.await_deletions()?;
        fs.become_read_only();
        fs.drop_windows();
        fs.journal.pause(&**fs)?;
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
            let nameless = self.fs.inodes.nameless();
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
        let fs = &self.fs;
        fs.check_process()?;
        let _growing = self.fs.growing.lock();
        let is_new_damage =
            fs.superblock.has_met_errors() && fs.options.on_error == OnError::ReadOnly;
        if fs.options.access == Access::ReadOnly || fs.journal.is_aborted() || is_new_damage {
            return Err(Error::ReadOnly);
        }
        if fs.is_read_only() {
            // Before any change the superblock must say that the file system is in use, so that a
            // mount after a crash replays the log.
            self.mark_in_use(Purpose::Use)?;
            fs.journal.resume();
            fs.read_only.store(false, Ordering::Release);
        }
        Ok(())
    }
}

// Reads the parts of a file system and composes them.

/// Composes the file system whose log was replayed. Its journal accepts no transaction before the
/// committer runs.
pub(crate) fn load(opened: Opened, options: &MountOptions) -> Result<Arc<Fs>, Error> {
    let (descriptors, system) = read_places(&opened)?;
    let Opened { device, log, superblock, access } = opened;
    let geometry = superblock.geometry();
    let volume =
        Volume::new(device.clone(), &superblock, &descriptors, system.clone(), &options.keys)?;
    let writes_fast =
        access == Access::ReadWrite && options.fast_commits == FastCommitting::IfPossible;
    let fast = writes_fast.then(|| FastCommits::new(&superblock)).flatten();
    let log = log.filter(|_| access == Access::ReadWrite).map(|mut log| {
        // If this feature is not set in the log, all programs ignore the fast commits of earlier
        // mounts.
        log.features.set(JournalIncompat::FAST_COMMIT, fast.is_some());
        log
    });
    let journal = Journal::start(Config {
        device: device.clone(),
        block_size: geometry.block_size(),
        log,
        commit_interval: options.commit_interval,
        image_cap: images_within(options.cache_bytes),
    })?;
    let image = read_block(&*device, &geometry, geometry.super_block())?;
    let setup = Setup {
        reserved: volume.reserved_blocks >> geometry.cluster_bits(),
        allocation: options.allocation.clone(),
        row: stripe_of(&superblock, options.stripe, device.row_len()),
        bitmap_bytes: bitmaps_within(options.cache_bytes),
        reuse: if fast.is_some() { Reuse::OnceDurable } else { Reuse::AtOnce },
    };
    let pressure = Pressure::new(options.cache_bytes, geometry.block_size().bytes() as u64);
    let (inodes_room, meta_room) = pressure.room();
    let fs = Fs {
        mount: MountRef::new(),
        journal,
        tables: Tables::new(&geometry, &descriptors),
        groups: Groups::new(geometry, volume.checksums, descriptors, system, setup),
        inodes: Inodes::new(inodes_room),
        meta: MetaCache::new(meta_room),
        orphans: Orphans::new(),
        superblock: SuperState::new(superblock, image),
        fast,
        read_only: AtomicBool::new(access == Access::ReadOnly),
        options: MountOptions { access, journal: None, keys: Vec::new(), ..options.clone() },
        pressure,
        verified: VerifiedBlocks::default(),
        finishing_orphans: AtomicBool::new(false),
        volume,
        topology: Padded(Mutex::new(Rank::Topology, ())),
        growing: Padded(Mutex::new(Rank::Topology, ())),
    };
    if fs.fast.is_some() {
        fs.mount.note_fast_commits();
    }
    Ok(Arc::new(fs))
}

/// Reads the descriptors. Returns them, and the blocks that the file system uses itself.
fn read_places(opened: &Opened) -> Result<(Vec<GroupDesc>, Arc<SystemBlocks>), Error> {
    let Opened { device, log, superblock, .. } = opened;
    let geometry = superblock.geometry();
    let descriptors = read_descriptors(&**device, &geometry, superblock.checksums())?;
    let log_runs = log.iter().flat_map(|log| log.map.runs());
    let runs: Vec<_> = log_runs.chain(superblock.mmp_block().map(|block| (block, 1))).collect();
    check_log_place(&geometry, &descriptors, &runs)?;
    let system = Arc::new(SystemBlocks::new(&geometry, &descriptors, runs));
    Ok((descriptors, system))
}

/// Checks that the log and the MMP block do not overlap other metadata, because writes to the log
/// or the MMP block would destroy that metadata.
fn check_log_place(
    geometry: &Geometry,
    descriptors: &[GroupDesc],
    runs: &[(Block, u32)],
) -> Result<(), Error> {
    let others = SystemBlocks::new(geometry, descriptors, []);
    let wrong = runs.iter().find_map(|(start, len)| others.first_in(*start, u64::from(*len)));
    match wrong {
        Some(block) => Err(Error::ClaimsMetadata { ino: Ino::JOURNAL, block }),
        None => Ok(()),
    }
}

/// Reads and checks all group descriptors.
///
/// # Errors
/// [`Error::Corruption`], [`Error::TooManyGroups`], [`Error::Device`].
pub fn read_descriptors(
    device: &dyn Device,
    geometry: &Geometry,
    checksums: Checksums,
) -> Result<Vec<GroupDesc>, Error> {
    descriptors(geometry, checksums, &|block| read_block(device, geometry, block))
}

// Starts the counting for quotas when a file system is mounted.

/// Reads the quota files, if the file system has any; from now on each commit updates them.
/// Enforces the limits for the kinds of owners in `obeyed`.
///
/// # Errors
/// The errors of reading the quota files; [`Error::Unsupported`] if a kind in `obeyed` has no file.
pub(crate) fn keep_quotas(fs: &Fs, obeyed: &[Kind]) -> Result<(), Error> {
    let mut ledgers = fs.read_quotas()?;
    for kind in obeyed {
        match ledgers.get_mut(kind.index()).and_then(Option::as_mut) {
            Some(ledger) => ledger.obey_limits(),
            None => {
                let what = format!("limits of a {} without a quota file", kind.name());
                return Err(Unsupported { what }.into());
            }
        }
    }
    if ledgers.iter().any(Option::is_some) {
        fs.mount.keep(Quotas::new(ledgers, fs.volume.geometry().first_ino()));
    }
    Ok(())
}
