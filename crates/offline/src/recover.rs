//! Recovery without a mount: replays the log, finishes the orphans, marks the file system clean.

use crate::error::Error;
use crate::image::Image;
use lanefs_device::{Device, OverlayDevice};
use lanefs_ext4::{Mount, MountOptions, Primary, Purpose, Wholeness, log};
use lanefs_ondisk::features::{Incompat, RoCompat, Support};
use lanefs_ondisk::superblock::{State, Superblock};
use lanefs_ondisk::{Ino, Unsupported};
use std::collections::HashSet;
use std::sync::Arc;

/// The largest amount of memory, in bytes, that a replay in memory may take. With blocks of 4 KiB,
/// the largest log that mke2fs makes by default has about half of this size.
const OVERLAY_CAP: u64 = 2 << 30;

/// The size of a recovery's caches in bytes. A recovery reads few inodes, and larger caches would
/// take longer to allocate than the recovery of a small log takes.
const CACHE_BYTES: u64 = 8 << 20;

/// The condition of a file system after a crash or an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Condition {
    /// The superblock's checksum is wrong, as after a crash during its write, but its contents
    /// agree with an intact copy of the superblock.
    pub torn_superblock: bool,
    /// The log must be replayed.
    pub needs_replay: bool,
    /// The number of transactions in the log.
    pub transactions: u32,
    /// The number of fast commits after the last transaction in the log.
    pub fast_commits: u32,
    /// The number of blocks that the replay writes.
    pub blocks: u64,
    /// The log holds a transaction, but the superblock does not request its replay. A program that
    /// changed the unmounted file system was interrupted before it wrote that request. The recovery
    /// drops this transaction.
    pub has_stale_log: bool,
    /// The number of deleted files to be freed, plus the number of truncations to be finished.
    pub orphans: u64,
    /// A journal was being added or removed: its inode is in use, but the superblock names no
    /// journal.
    pub half_journal: bool,
    /// Errors were found while the file system was in use. `lanefs repair` and e2fsck clear this
    /// state.
    pub has_errors: bool,
    /// The file system has no journal and was not unmounted, so only a check can find out whether
    /// it is damaged.
    pub is_unclean: bool,
}

impl Condition {
    /// Returns whether there is something for a recovery to do.
    pub fn needs_recovery(&self) -> bool {
        self.torn_superblock
            || self.needs_replay
            || self.has_stale_log
            || self.orphans > 0
            || self.half_journal
    }

    /// Returns whether the file system needs a check because a recovery is not sufficient.
    pub fn needs_check(&self) -> bool {
        self.has_errors || self.is_unclean
    }
}

/// The result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// The condition before the recovery.
    pub before: Condition,
    /// The condition after the recovery; only a repair can correct the problems that are left.
    pub after: Condition,
}

/// Returns the condition of the file system on `device`. Writes nothing: a log is replayed in
/// memory.
///
/// # Errors
/// [`Error::Ext4`] if there is no file system, or it is damaged, or Lanefs cannot write it.
pub fn look(device: &Arc<dyn Device>) -> Result<Condition, Error> {
    look_with(device, None)
}

/// Does the same as [`look`], for a file system whose journal is on `journal`.
///
/// # Errors
/// The same as for [`look`].
pub fn look_with(
    device: &Arc<dyn Device>,
    journal: Option<&Arc<dyn Device>>,
) -> Result<Condition, Error> {
    let Primary { superblock, wholeness } = Primary::read_with(&**device, journal)?;
    if let Support::Refused(names) | Support::ReadOnly(names) = superblock.support_with_journal() {
        let what = format!("{} (recovery needs to write)", names.join(", "));
        return Err(lanefs_ext4::Error::from(Unsupported { what }).into());
    }
    let mut condition = of_superblock(&superblock);
    condition.torn_superblock = wholeness != Wholeness::Whole;
    let may_have_orphans = superblock.last_orphan().is_some() || has_orphan_entries(&superblock);
    if superblock.journal().is_none() {
        condition.half_journal = Image::load(device.clone())?.has_half_journal()?;
    }
    if !condition.needs_replay && !condition.torn_superblock {
        condition.has_stale_log = has_transactions(device, &superblock, journal)?;
        if !may_have_orphans {
            return Ok(condition);
        }
    }
    let mut replayed = device.clone();
    let log = log::locate(&**device, &superblock, journal)?;
    if let Some(log) = log.filter(|_| !condition.has_stale_log) {
        replayed = log::overlay(device, &superblock, &log);
        let found = log::plan(&**device, &superblock, &log)?.write(&*replayed)?;
        condition.transactions = found.transactions;
        condition.fast_commits = found.fast_commits;
        condition.blocks = found.blocks;
        condition.needs_replay |= found.transactions > 0 || found.fast_commits > 0;
        condition.has_errors |= log.superblock.errno() != 0;
    }
    let image = Image::load(replayed)?;
    condition.has_errors |= image.superblock().state().contains(State::ERROR);
    condition.orphans = count_orphans(&image)?;
    Ok(condition)
}

/// Replays the log, finishes the orphans and marks the file system clean. A file system that is
/// clean already is not written. Neither the mount count nor the mount time changes.
///
/// # Errors
/// The same as for [`look`], and errors of writing; after an error, `recover` can be called again.
pub fn recover(device: &Arc<dyn Device>) -> Result<Recovered, Error> {
    recover_with(device, None)
}

/// Does the same as [`recover`], for a file system whose journal is on `journal`.
///
/// # Errors
/// The same as for [`recover`].
pub fn recover_with(
    device: &Arc<dyn Device>,
    journal: Option<&Arc<dyn Device>>,
) -> Result<Recovered, Error> {
    let before = look_with(device, journal)?;
    if !before.needs_recovery() {
        return Ok(Recovered { before, after: before });
    }
    if before.half_journal {
        Image::load_exclusively(device.clone(), None)?.end_half_journal()?;
    }
    replay(device, journal)?;
    Ok(Recovered { before, after: look_with(device, journal)? })
}

/// Replays a log that is on a device of its own. Called before a check, because a checker cannot
/// find such a log. The replayed blocks are written in place, durably; nothing else changes.
/// Returns `false`, and writes nothing, if the log is in the image or need not be replayed. Damage
/// in the superblock is left to the checker.
///
/// # Errors
/// [`Error::Ext4`] if `journal` is missing or is not that of this file system, or if the log cannot
/// be replayed.
pub fn replay_elsewhere(
    device: &Arc<dyn Device>,
    journal: Option<&Arc<dyn Device>>,
) -> Result<bool, Error> {
    let Ok(Primary { superblock, .. }) = Primary::read_with(&**device, journal) else {
        return Ok(false);
    };
    let needs_replay =
        superblock.has_journal_elsewhere() && of_superblock(&superblock).needs_replay;
    if needs_replay || journal.is_some() {
        // The call checks that the journal belongs to this file system.
        log::locate(&**device, &superblock, journal)?;
    }
    if needs_replay {
        log::replay(device, journal)?;
    }
    Ok(needs_replay)
}

/// Returns a view of `device` as [`replay_elsewhere`] would leave it. Writes nothing.
///
/// # Errors
/// The same as for [`replay_elsewhere`].
pub fn view_without_log_elsewhere(
    device: &Arc<dyn Device>,
    journal: Option<&Arc<dyn Device>>,
) -> Result<Arc<dyn Device>, Error> {
    let in_memory = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
        Arc::new(OverlayDevice::new(device.clone(), OVERLAY_CAP))
    };
    let view = in_memory(device);
    match replay_elsewhere(&view, journal.map(in_memory).as_ref())? {
        true => Ok(view),
        false => Ok(device.clone()),
    }
}

/// Returns a view of `device` in which a transaction has replaced the fast commits of the log, for
/// a program that replays only transactions. Returns `device` itself if there are no fast commits.
/// Writes nothing.
///
/// # Errors
/// [`Error::Ext4`] if the log cannot be read, or its fast commits cannot be replayed.
pub fn view_without_fast_commits(device: &Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
    let view: Arc<dyn Device> = Arc::new(OverlayDevice::new(device.clone(), OVERLAY_CAP));
    match log::replace_fast_commits(&view, None)? {
        true => Ok(view),
        false => Ok(device.clone()),
    }
}

/// Recovers the file system like [`recover_with`], and returns the condition after the recovery. If
/// the superblock requests a replay, this function replays the log on the device at once, whereas
/// [`recover_with`] first replays it in memory to find out the condition.
pub(crate) fn make_usable(
    device: &Arc<dyn Device>,
    journal: Option<&Arc<dyn Device>>,
) -> Result<Condition, Error> {
    let Primary { superblock, wholeness } = Primary::read_with(&**device, journal)?;
    let has_journal = superblock.journal().is_some();
    let is_plain =
        wholeness == Wholeness::Whole && superblock.support_with_journal() == Support::ReadWrite;
    if is_plain && has_journal && of_superblock(&superblock).needs_replay {
        replay(device, journal)?;
    }
    Ok(recover_with(device, journal)?.after)
}

fn replay(device: &Arc<dyn Device>, journal: Option<&Arc<dyn Device>>) -> Result<(), Error> {
    let options = MountOptions {
        purpose: Purpose::Recovery,
        journal: journal.cloned(),
        cache_bytes: CACHE_BYTES,
        ..MountOptions::default()
    };
    Ok(Mount::open(device.clone(), options)?.close()?)
}

pub(crate) fn of_superblock(superblock: &Superblock) -> Condition {
    let state = superblock.state();
    Condition {
        needs_replay: superblock.features().incompat.contains(Incompat::RECOVER),
        has_errors: state.contains(State::ERROR),
        is_unclean: superblock.journal().is_none() && !state.contains(State::VALID),
        ..Condition::default()
    }
}

fn has_transactions(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    journal: Option<&Arc<dyn Device>>,
) -> Result<bool, Error> {
    let log = log::locate(&**device, superblock, journal)?;
    Ok(log.is_some_and(|log| log.superblock.start().is_some()))
}

fn has_orphan_entries(superblock: &Superblock) -> bool {
    superblock.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT)
}

/// Counts the inodes of the orphan list and of the orphan file.
fn count_orphans(image: &Image) -> Result<u64, Error> {
    let mut seen = HashSet::new();
    let mut next = image.superblock().last_orphan();
    while let Some(ino) = next.filter(|ino| seen.insert(*ino)) {
        next = Some(Ino(image.inode(ino)?.dtime)).filter(|next| next.0 != 0);
    }
    let mut count = seen.len() as u64;
    if let Some(file) =
        image.superblock().orphan_file().filter(|_| has_orphan_entries(image.superblock()))
    {
        count += image.orphans_in(file)?.len() as u64;
    }
    Ok(count)
}
