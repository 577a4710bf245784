//! Replays the log at mount, and returns the state of the file system after that.

use crate::data::FileData;
use crate::mount::find_log;
use crate::mount::find_log::{LogReplay, Primary, Wholeness};
use crate::mount::mmp::Exclusive;
use crate::object::dirty::OrphanSlot;
use crate::object::fs::Fs;
use crate::object::inode::InodeRef;
use crate::object::orphan::SUPERBLOCK;
use crate::options::{Access, MountOptions, Recovery};
use crate::volume::MetaKind;
use lanefs_device::Device;
use lanefs_journal::recovery::Input;
use lanefs_journal::{Log, recovery};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_lanes::{Nameless, set_nameless};
use lanefs_mkfs::resize::backup;
use lanefs_ondisk::features::{Incompat, RoCompat, Support};
use lanefs_ondisk::inode::Cause;
use lanefs_ondisk::jbd2::Sequence;
use lanefs_ondisk::superblock::{OrphanEntries, Recovery as OnDisk, SUPERBLOCK_OFFSET, Superblock};
use lanefs_ondisk::{
    Block, BlockSize, Corruption, FileBlock, FileType, Ino, Unsupported, orphan as disk,
};
use lanefs_plan::{Error, extent};
use std::collections::HashSet;

/// A file system in the state after the replay of its log.
pub(crate) struct Opened {
    /// The device, or an overlay of it with the blocks of the log.
    pub(crate) device: Arc<dyn Device>,
    pub(crate) log: Option<Log>,
    /// The newest superblock: the one in the log, if the log contains one.
    pub(crate) superblock: Superblock,
    pub(crate) access: Access,
}

/// Takes the exclusive right to write to the file system if it has `mmp` and is opened for writing.
pub(crate) fn take_mmp(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    options: &MountOptions,
) -> Result<Option<Exclusive>, Error> {
    match possible_access(superblock, &**device, options)? {
        Access::ReadWrite => Exclusive::take_for(device, superblock),
        Access::ReadOnly => Ok(None),
    }
}

/// Finds the log and replays it: onto the device, or for a read-only mount onto an overlay.
///
/// Before anything is written, the superblock that the replay would produce decides whether and how
/// the file system can be mounted.
pub(crate) fn open(
    device: Arc<dyn Device>,
    primary: Primary,
    options: &MountOptions,
) -> Result<Opened, Error> {
    let Primary { superblock, wholeness } = primary;
    check_length(&*device, &superblock)?;
    let access = possible_access(&superblock, &*device, options)?;
    // In a torn superblock, the flag `RECOVER` may come from the older half.
    let is_torn = wholeness != Wholeness::Whole;
    let needs = superblock.features().incompat.contains(Incompat::RECOVER) || is_torn;
    let skips = options.recovery == Recovery::Skip;
    let mut log = match find_log::locate(&*device, &superblock, options.journal.as_ref()) {
        Ok(Some(log)) => log,
        Ok(None) => return Ok(Opened { device, log: None, superblock, access }),
        // A read-only mount needs no journal, unless the newest state is in the journal.
        Err(_) if access == Access::ReadOnly && (!needs || skips) => {
            return Ok(Opened { device, log: None, superblock, access });
        }
        Err(error) => return Err(error),
    };
    if skips || (access == Access::ReadOnly && !needs) {
        return Ok(Opened { device, log: Some(log), superblock, access });
    }
    if !needs {
        wipe(&*device, &superblock, &mut log)?;
        return Ok(Opened { device, log: Some(log), superblock, access });
    }
    let replay = find_log::plan(&*device, &superblock, &log)?;
    // The new size and the flag that requests the replay are in the same sector of the superblock,
    // so the shrinking takes effect when this sector is written. A torn superblock with the older
    // version of this sector has neither the new size nor the flag, so the shrinking did not take
    // effect.
    let asks = superblock.features().incompat.contains(Incompat::RECOVER);
    if is_torn && !asks && shrinks(&replay, &superblock) {
        if access == Access::ReadWrite {
            // Once the log is empty, no copy proves that the torn superblock is right. So the
            // superblock is made whole first; only its checksum changes, which is in one sector.
            device.write_durable_at(SUPERBLOCK_OFFSET, &superblock.encode())?;
            wipe(&*device, &superblock, &mut log)?;
        }
        return Ok(Opened { device, log: Some(log), superblock, access });
    }
    let superblock = match find_log::superblock_in(&replay, &superblock)? {
        Some(next) => {
            superblock.check_next(&next)?;
            next
        }
        None => superblock,
    };
    check_length(&*device, &superblock)?;
    let access = possible_access(&superblock, &*device, options)?;
    if access == Access::ReadWrite && replay.fast().is_some() {
        replace(&device, &superblock, &log, &replay)?;
        let primary = Primary::read_with(&*device, options.journal.as_ref())?;
        return open(device, primary, options);
    }
    let target: Arc<dyn Device> = match access {
        Access::ReadWrite => device.clone(),
        Access::ReadOnly => find_log::overlay(&device, &superblock, &log),
    };
    let recovered = replay.write(&*target)?;
    if access == Access::ReadWrite && log.superblock.start().is_some() {
        let size = superblock.geometry().block_size();
        resize_backups(&*device, &superblock)?;
        mark_empty(&*device, &mut log, size, recovered.sequence)?;
    }
    Ok(Opened { device: target, log: Some(log), superblock, access })
}

/// Replays the log of the file system on `device` onto the device itself, durably. Everything else
/// stays as it is, for example the orphans. Afterwards the log is empty, and the superblock does
/// not request a replay. After a crash during the replay, this function can be called again.
/// `journal` is the log's device, if the log is on a device of its own.
///
/// # Errors
/// [`Error::Device`], and the errors of [`find_log::locate`] and [`find_log::plan`], which are
/// detected before anything is written.
pub fn replay(device: &Arc<dyn Device>, journal: Option<&Arc<dyn Device>>) -> Result<(), Error> {
    replace_fast_commits(device, journal)?;
    let Primary { superblock, .. } = Primary::read_with(&**device, journal)?;
    let Some(mut log) = find_log::locate(&**device, &superblock, journal)? else { return Ok(()) };
    let replay = find_log::plan(&**device, &superblock, &log)?;
    let mut after = find_log::superblock_in(&replay, &superblock)?.unwrap_or(superblock.clone());
    superblock.check_next(&after)?;
    check_length(&**device, &after)?;
    let recovered = replay.write(&**device)?;
    if log.superblock.start().is_some() {
        resize_backups(&**device, &after)?;
        mark_empty(&**device, &mut log, after.geometry().block_size(), recovered.sequence)?;
    }
    let present = after.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    let orphans = if present { OrphanEntries::Present } else { OrphanEntries::Absent };
    after.set_dirty_features(OnDisk::NotNeeded, orphans);
    Ok(device.write_durable_at(SUPERBLOCK_OFFSET, &after.encode())?)
}

/// Durably replaces the fast commits in the log of the file system on `device` by a transaction
/// that has the same effect. Any program that replays logs can then replay this log. `journal` is
/// the log's device, if the log is on a device of its own. Returns false if there are no fast
/// commits.
///
/// # Errors
/// [`Error::Unsupported`] if the fast commits cannot be replayed; in this case nothing was written.
/// [`Error::Device`]; in this case the log contains either the fast commits or the transaction.
pub fn replace_fast_commits(
    device: &Arc<dyn Device>,
    journal: Option<&Arc<dyn Device>>,
) -> Result<bool, Error> {
    let Primary { superblock, wholeness } = Primary::read_with(&**device, journal)?;
    let asks = superblock.features().incompat.contains(Incompat::RECOVER);
    if !asks && wholeness == Wholeness::Whole {
        return Ok(false);
    }
    let Some(log) = find_log::locate(&**device, &superblock, journal)? else { return Ok(false) };
    let replay = find_log::plan(&**device, &superblock, &log)?;
    replace(device, &superblock, &log, &replay)?;
    Ok(replay.fast().is_some())
}

fn replace(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    log: &Log,
    replay: &LogReplay<'_>,
) -> Result<(), Error> {
    let Some(fast) = replay.fast() else { return Ok(()) };
    replay.write_copies(&**device)?;
    let size = superblock.geometry().block_size();
    Ok(recovery::put(device.clone(), size, log, fast)?)
}

/// Returns whether the log contains the superblock of a smaller file system.
fn shrinks(replay: &LogReplay<'_>, superblock: &Superblock) -> bool {
    let next = find_log::superblock_in(replay, superblock).ok().flatten();
    next.is_some_and(|next| next.geometry().block_count() < superblock.geometry().block_count())
}

/// Like the kernel, empties a log whose replay the superblock does not request. The transaction in
/// this log was prepared but never took effect.
fn wipe(device: &dyn Device, superblock: &Superblock, log: &mut Log) -> Result<(), Error> {
    if log.superblock.start().is_none() || log.device_or(device).is_read_only() {
        return Ok(());
    }
    let geometry = superblock.geometry();
    let (device_of_log, blocks) = (log.device_or(device), geometry.block_count());
    let input = Input { device: device_of_log, map: &log.map, superblock: &log.superblock, blocks };
    let latest = recovery::latest_number(&input);
    mark_empty(device, log, geometry.block_size(), latest.next())
}

/// Writes the backups of the superblock that have another number of blocks. The replay may have
/// finished a growth before which the backups were written. Once the log is empty, they alone can
/// prove that a torn superblock is right.
fn resize_backups(device: &dyn Device, superblock: &Superblock) -> Result<(), Error> {
    let geometry = superblock.geometry();
    let mut outdated = Vec::new();
    for group in geometry.backups() {
        let start = geometry.group_first_block(group).unwrap_or_default();
        let at = start.0 << geometry.block_size().bits();
        let mut bytes = vec![0; SUPERBLOCK.len()];
        // A backup that is damaged or cannot be read is left to a check.
        let read = device.read_at(at, &mut bytes).ok();
        let copy = read.and_then(|()| Superblock::decode(&bytes).ok());
        if copy.is_some_and(|copy| copy.geometry().block_count() != geometry.block_count()) {
            outdated.push((at, backup(superblock, group)?.encode()));
        }
    }
    if outdated.is_empty() {
        return Ok(());
    }
    outdated.iter().try_for_each(|(at, bytes)| device.write_at(*at, bytes))?;
    Ok(device.flush()?)
}

fn mark_empty(
    device: &dyn Device,
    log: &mut Log,
    size: BlockSize,
    sequence: Sequence,
) -> Result<(), Error> {
    let Log { device: apart, map, superblock, .. } = log;
    let device = apart.as_deref().unwrap_or(device);
    Ok(recovery::mark_empty(device, map, size, superblock, sequence)?)
}

/// Returns the requested access, or read-only access if the file system or a device does not permit
/// writing.
fn possible_access(
    superblock: &Superblock,
    device: &dyn Device,
    options: &MountOptions,
) -> Result<Access, Error> {
    // If the journal's device is missing, this is reported later, when the log is searched.
    let possible = match superblock.support_with_journal() {
        Support::Refused(names) => return Err(Unsupported { what: names.join(", ") }.into()),
        Support::ReadOnly(_) => Access::ReadOnly,
        Support::ReadWrite => Access::ReadWrite,
    };
    let wants_write = options.access == Access::ReadWrite && options.recovery == Recovery::Replay;
    let is_protected =
        device.is_read_only() || options.journal.as_ref().is_some_and(|log| log.is_read_only());
    match possible == Access::ReadWrite && wants_write && !is_protected {
        true => Ok(Access::ReadWrite),
        false => Ok(Access::ReadOnly),
    }
}

fn check_length(device: &dyn Device, superblock: &Superblock) -> Result<(), Error> {
    let geometry = superblock.geometry();
    let needs = geometry.block_count().saturating_mul(geometry.block_size().bytes() as u64);
    match device.len() < needs {
        true => Err(Error::TooShort { has: device.len(), needs }),
        false => Ok(()),
    }
}

// Finishes the orphans of the last mount: deletes them or finishes their truncation.

/// At mount: opens the orphan file, then deletes the nameless inodes and finishes the truncations
/// that the last mount left. The orphan file and the legacy list name these inodes.
pub(crate) fn finish_orphans(fs: &Fs, file: Option<Ino>, head: Option<Ino>) -> Result<(), Error> {
    fs.finishing_orphans.store(true, Ordering::Release);
    let result = finish_found(fs, file, head);
    fs.finishing_orphans.store(false, Ordering::Release);
    result
}

fn finish_found(fs: &Fs, file: Option<Ino>, head: Option<Ino>) -> Result<(), Error> {
    let mut found = Vec::new();
    if let Some(ino) = file {
        found.extend(open_orphan_file(fs, ino)?);
    }
    // From here on the inodes are held in memory. If an inode without links were evicted, the next
    // look-up would take it for deleted.
    let list = read_list(fs, head)?;
    found.extend(fs.orphans.adopt_list(list.iter().map(|inode| inode.ino)));
    let mut held = Vec::new();
    for (ino, place) in found {
        let inode = orphan(fs, ino)?;
        let mut state = inode.state.lock();
        let twice = state.orphan.replace(place).is_some();
        state.disk.dtime = 0;
        let is_unlinked = state.disk.links == 0;
        drop(state);
        if twice {
            return Err(Corruption::Inode { ino, cause: Cause::OrphanLoop }.into());
        }
        if let Some(quotas) = fs.mount.quotas().filter(|_| is_unlinked) {
            quotas.note_unlinked(ino);
        }
        held.push(inode);
    }
    drop(list);
    // The loop above has noted the positions of all orphans in the legacy list or the orphan file.
    // This is done before the first deletion, because each deletion changes the legacy list.
    for inode in held {
        if inode.attr().links == 0 {
            set_nameless(&inode, Nameless::Yes);
            continue;
        }
        let _exclusive = inode.op.exclusive();
        let block_size = fs.volume.block_size() as u64;
        let keep = inode.attr().size.div_ceil(block_size);
        let data = FileData { fs, inode: &inode };
        // The blocks after the end of a verity file are its hash tree, so they stay.
        if inode.file_type == FileType::Regular && !data.is_verity() {
            let keep = u32::try_from(keep).unwrap_or(u32::MAX);
            data.free_from(keep)?;
        }
        data.leave_orphans()?;
    }
    Ok(())
}

/// Loads an inode that is an orphan according to the disk.
fn orphan(fs: &Fs, ino: Ino) -> Result<InodeRef, Error> {
    if !fs.volume.is_for_names(ino) {
        return Err(Corruption::Inode { ino, cause: Cause::NoSuchInode }.into());
    }
    // `get_any` is used because an inode that holds the value of an attribute can be an orphan: the
    // kernel leaves such orphans.
    fs.get_any(ino, None).map_err(|error| match error {
        Error::Stale => Corruption::Inode { ino, cause: Cause::NoOrphan }.into(),
        error => error,
    })
}

/// Pins the blocks of the orphan file, and returns the entries found in it.
fn open_orphan_file(fs: &Fs, ino: Ino) -> Result<Vec<(Ino, OrphanSlot)>, Error> {
    let file = fs.get_any(ino, None)?;
    let blocks = file.attr().size >> fs.volume.geometry().block_size().bits();
    let end = u32::try_from(blocks).unwrap_or(u32::MAX);
    let mut found = Vec::new();
    let mut pinned = Vec::new();
    // Uses only the mapped blocks, because the size may be wrong.
    let extents = FileData { fs, inode: &file }.with_map(|map| extent::overlapping(map, 0..end))?;
    let mapped = extents
        .iter()
        .flat_map(|e| (0..e.len).map(|at| (e.start.0 + at, Block(e.block.0 + u64::from(at)))));
    for (n, block) in mapped {
        let kind = MetaKind::Orphans { ino, generation: file.generation, block: FileBlock(n) };
        let block = fs.meta.get(fs, block, kind)?;
        let seed = disk::OrphanSeed::new(fs.volume.checksums, ino, file.generation);
        let entries = disk::OrphanBlock::decode(&block.data(), block.block, seed)
            .map_err(|cause| Corruption::OrphanFile { ino, block: FileBlock(n), cause })?;
        for (slot, orphan) in entries.orphans() {
            found.push((orphan, OrphanSlot::File { block: pinned.len(), slot }));
        }
        pinned.push(block);
    }
    fs.orphans.set_file(pinned, found.len());
    Ok(found)
}

/// Reads the legacy list, which is newest first on disk, and returns it oldest first.
fn read_list(fs: &Fs, head: Option<Ino>) -> Result<Vec<InodeRef>, Error> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut next = head;
    while let Some(ino) = next {
        if !seen.insert(ino) {
            return Err(Corruption::Inode { ino, cause: Cause::OrphanLoop }.into());
        }
        let inode = orphan(fs, ino)?;
        let dtime = inode.state.lock().disk.dtime;
        found.push(inode);
        next = (dtime != 0).then_some(Ino(dtime));
    }
    found.reverse();
    Ok(found)
}

/// Returns whether the orphan file still has entries: either nameless inodes that were still open
/// at the unmount, or entries that the mount did not read.
pub(crate) fn orphans_left(fs: &Fs) -> OrphanEntries {
    let unread = !fs.orphans.has_file()
        && fs.superblock.snapshot().features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    match unread || fs.orphans.are_in_file() {
        true => OrphanEntries::Present,
        false => OrphanEntries::Absent,
    }
}
