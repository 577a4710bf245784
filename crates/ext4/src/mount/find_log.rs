//! Finds and reads the log before the journal is started. The log is in a file or on a device of
//! its own.

use crate::object::orphan::SUPERBLOCK;
use lanefs_device::{Device, OverlayDevice};
use lanefs_journal::recovery::{FastImages, Input, Recovered, Replay};
use lanefs_journal::{Log, LogMap, recovery};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::jbd2::{JournalIncompat, JournalSuperblock};
use lanefs_ondisk::superblock::{Cause, Geometry, JournalDevice, JournalPlace, Superblock};
use lanefs_ondisk::{Block, Corruption, Group, Ino, UnfitJournal, Unsupported, inode as disk};
use lanefs_plan::Expected;
use lanefs_plan::extent::Nodes;
use lanefs_plan::mapping::Form;
use lanefs_plan::{Error, InvalidArgument, extent, fast_commit};

/// Reads nodes straight from the device, before the journal is started.
struct BareNodes<'d> {
    device: &'d dyn Device,
    geometry: Geometry,
    seed: Option<Seed>,
    ino: Ino,
}

impl Nodes for BareNodes<'_> {
    fn node(&self, block: Block) -> Result<Arc<[u8]>, Error> {
        let bytes = read_block(self.device, &self.geometry, block)?;
        if let Some(seed) = self.seed {
            lanefs_ondisk::extent::verify(&bytes, seed).map_err(|cause| {
                lanefs_ondisk::Corruption::ExtentNode { ino: self.ino, block: Some(block), cause }
            })?;
        }
        Ok(bytes.into())
    }
}

/// Finds the log of the file system on `device`: in the file that the superblock names, or on
/// `journal`, which the caller passes if the log has its own device.
///
/// # Errors
/// [`Error::JournalDevice`] if the device of the log is missing or belongs to another file system;
/// [`Error::InvalidArgument`] if `journal` is given and the log has no device of its own; the
/// errors of [`find`].
pub fn locate(
    device: &dyn Device,
    superblock: &Superblock,
    journal: Option<&Arc<dyn Device>>,
) -> Result<Option<Log>, Error> {
    match (superblock.journal(), journal) {
        (Some(JournalPlace::Device(uuid)), Some(journal)) => {
            on_device(journal, superblock, uuid).map(Some)
        }
        (Some(JournalPlace::Device(uuid)), None) => {
            Err(Error::JournalDevice { uuid, why: UnfitJournal::Missing })
        }
        (_, Some(_)) => Err(InvalidArgument::NoJournalDevice.into()),
        (Some(JournalPlace::Inode(ino)), None) => find(device, superblock, ino).map(Some),
        (None, None) => Ok(None),
    }
}

/// Reads the log on its own device. Both sides must name each other: the file system's superblock
/// names the UUID of the device, and the journal superblock lists the UUID of the file system.
fn on_device(
    journal: &Arc<dyn Device>,
    superblock: &Superblock,
    uuid: [u8; 16],
) -> Result<Log, Error> {
    let unfit = |why| Error::JournalDevice { uuid, why };
    let mut bytes = vec![0; SUPERBLOCK.len()];
    if journal.len() < SUPERBLOCK.end as u64 {
        let why = UnfitJournal::TooShort { has: journal.len(), needs: SUPERBLOCK.end as u64 };
        return Err(unfit(why));
    }
    journal.read_at(SUPERBLOCK.start as u64, &mut bytes)?;
    let found = JournalDevice::decode(&bytes)
        .map_err(|damage| unfit(UnfitJournal::NotAJournal { damage }))?;
    if found.uuid != uuid {
        return Err(unfit(UnfitJournal::OtherUuid { found: found.uuid }));
    }
    let size = superblock.geometry().block_size();
    if found.block_size != size {
        let (found, needs) = (found.block_size.bytes(), size.bytes());
        return Err(unfit(UnfitJournal::BlockSize { found, needs }));
    }
    let needs = found.blocks.saturating_mul(size.bytes() as u64);
    if journal.len() < needs {
        return Err(unfit(UnfitJournal::TooShort { has: journal.len(), needs }));
    }
    // A log has block numbers of 32 bits.
    let blocks = u32::try_from(found.blocks).unwrap_or(u32::MAX);
    let at = found.journal_superblock();
    let map = LogMap::of_device(at, blocks);
    if at.0 >= found.blocks {
        return Err(unfit(UnfitJournal::TooShort {
            has: journal.len(),
            needs: (at.0 + 1) << size.bits(),
        }));
    }
    let mut head = vec![0; size.bytes()];
    journal.read_at(at.0 << size.bits(), &mut head)?;
    let damaged = |cause| Error::Corruption(Corruption::Journal { block: 0, cause });
    let log = JournalSuperblock::decode(&head, size, blocks).map_err(damaged)?;
    let first = log.log_area().start;
    if u64::from(first) <= at.0 {
        return Err(damaged(lanefs_ondisk::jbd2::Cause::First { first }));
    }
    if !log.users().contains(&superblock.uuid()) {
        return Err(unfit(UnfitJournal::NotAUser));
    }
    if log.user_count() != 1 {
        return Err(unfit(UnfitJournal::Shared));
    }
    let features = wanted(superblock);
    Ok(Log { device: Some(journal.clone()), map, superblock: log, features })
}

/// Returns the features that the kernel sets in the log of this file system, except the feature for
/// fast commits.
fn wanted(superblock: &Superblock) -> JournalIncompat {
    let mut features = JournalIncompat::empty();
    let wide = superblock.features().incompat.contains(Incompat::BIT64);
    features.set(JournalIncompat::BIT64, wide);
    features.set(JournalIncompat::CSUM_V3, superblock.checksums().seed().is_some());
    features
}

/// Reads the log in the file `ino`. Uses only the inode, the nodes that map its blocks and the
/// position of its inode table, since the log may contain newer versions of all other metadata.
///
/// # Errors
/// [`Error::Corruption`], [`Error::Device`]; [`Error::Journal`] if the inode does not map exactly
/// the blocks of its size.
pub fn find(device: &dyn Device, superblock: &Superblock, ino: Ino) -> Result<Log, Error> {
    let geometry = superblock.geometry();
    let no_inode = Corruption::Inode { ino, cause: disk::Cause::NoSuchInode };
    let place = geometry.inode_place(ino).ok_or(no_inode)?;
    let (index, range) = geometry.desc_place(place.group).expected()?;
    let block = geometry.desc_block(index).expected()?;
    let bytes = read_block(device, &geometry, block)?;
    let desc = bytes.get(range).expected()?;
    let start = GroupDesc::table_before_replay(desc, place.group, &geometry)?;
    let table = Block(start.0 + u64::from(place.table_block));
    let bytes = read_block(device, &geometry, table)?;
    let record = bytes.get(place.offset..place.offset + geometry.inode_size());
    let checksums = superblock.checksums();
    let inode = disk::Inode::decode(record.expected()?, ino, &geometry, checksums)?;
    let (form, seed) = match inode.flags.contains(disk::InodeFlags::EXTENTS) {
        true => (Form::Extents, checksums.seed()),
        // Indirect blocks have no checksum.
        false => (Form::BlockMap, None),
    };
    let seed = seed.map(|seed| seed.of_inode(ino, inode.generation));
    let nodes = BareNodes { device, geometry, seed, ino };
    let space = geometry.first_data_block().0..geometry.block_count();
    let limits = extent::Limits::new(ino, geometry.block_size(), space);
    let map = form.load(&inode.block, &nodes, &limits)?;
    let blocks = u32::try_from(inode.size >> geometry.block_size().bits()).unwrap_or(u32::MAX);
    let runs = map.iter().map(|extent| (extent.start.0, extent.block, extent.len));
    let map = LogMap::new(runs, blocks, geometry.block_count())?;
    let (first, _) = map.place(0).ok_or(lanefs_journal::Error::LogHole { log_block: 0 })?;
    let head = read_block(device, &geometry, first)?;
    let log = JournalSuperblock::decode(&head, geometry.block_size(), map.len())
        .map_err(|cause| Corruption::Journal { block: 0, cause })?;
    Ok(Log { device: None, map, superblock: log, features: wanted(superblock) })
}

/// Reads a block straight from the device, before the journal is started.
pub(crate) fn read_block(
    device: &dyn Device,
    geometry: &Geometry,
    block: Block,
) -> Result<Vec<u8>, Error> {
    if block.0 >= geometry.block_count() {
        return Err(Error::OutsideFileSystem { block });
    }
    let size = geometry.block_size().bytes();
    let mut bytes = vec![0; size];
    device.read_at(block.0 * size as u64, &mut bytes)?;
    Ok(bytes)
}

/// The writes that a replay would make, including those of fast commits. All are checked, and none
/// is made yet.
pub struct LogReplay<'a> {
    replay: Replay<'a>,
    /// If the replay makes the file system larger: the block of the superblock. It is written after
    /// all other copies.
    last: Option<Block>,
    fast: Option<FastImages>,
}

/// Returns a view of `device` for a replay in memory. The log's length limits the memory: each copy
/// takes a block of the log, and [`plan`] checks that the blocks that fast commits change would fit
/// into the log too.
pub fn overlay(device: &Arc<dyn Device>, superblock: &Superblock, log: &Log) -> Arc<dyn Device> {
    let block = superblock.geometry().block_size().bytes() as u64;
    let most = 2 * u64::from(log.superblock.blocks()) * block.max(OverlayDevice::GRANULE);
    Arc::new(OverlayDevice::new(device.clone(), most))
}

/// Returns the blocks that a replay of the log would write.
///
/// # Errors
/// [`Error::Journal`] if the log is damaged or cannot be read; [`Error::Unsupported`] if it has
/// fast commits that cannot be replayed; the errors of the metadata that fast commits change.
pub fn plan<'a>(
    device: &'a dyn Device,
    superblock: &Superblock,
    log: &'a Log,
) -> Result<LogReplay<'a>, Error> {
    let replay = plan_copies(device, superblock, log)?;
    // Before they replay the log, e2fsck and the kernel check all descriptors that the superblock
    // counts. So this replay writes the descriptors before a superblock that counts more of them.
    let geometry = superblock.geometry();
    let next = copied_superblock(&replay, superblock).ok().flatten();
    let grows = next.is_some_and(|next| next.geometry().block_count() > geometry.block_count());
    let last = grows.then(|| geometry.super_block());
    let fast = match replay.fast_changes() {
        [] => None,
        _ => Some(plan_fast(device, superblock, log, &replay)?),
    };
    Ok(LogReplay { replay, last, fast })
}

/// Returns the copies in the log that a replay would write.
///
/// # Errors
/// [`Error::Journal`].
fn plan_copies<'a>(
    device: &'a dyn Device,
    superblock: &Superblock,
    log: &'a Log,
) -> Result<Replay<'a>, Error> {
    let geometry = superblock.geometry();
    let within = |blocks| {
        let from = log.device_or(device);
        let source = Input { device: from, map: &log.map, superblock: &log.superblock, blocks };
        recovery::plan(&source)
    };
    let planned = within(geometry.block_count());
    let Err(lanefs_journal::Error::WildBlock { .. }) = planned else { return Ok(planned?) };
    // If the file system grew while it was mounted, the log has the larger superblock, and blocks
    // that only the larger file system has.
    let whole = within(device.len() >> geometry.block_size().bits());
    let larger = whole.ok().and_then(|whole| copied_superblock(&whole, superblock).ok().flatten());
    match larger {
        Some(larger) if superblock.check_next(&larger).is_ok() => {
            Ok(within(larger.geometry().block_count())?)
        }
        _ => Ok(planned?),
    }
}

/// Returns the blocks that the fast commits change, with their contents after the replay of both
/// the copies and the fast commits.
fn plan_fast(
    device: &dyn Device,
    primary: &Superblock,
    log: &Log,
    replay: &Replay<'_>,
) -> Result<FastImages, Error> {
    let copied = copied_superblock(replay, primary)?;
    let superblock = copied.as_ref().unwrap_or(primary);
    let geometry = superblock.geometry();
    let read = |block| match replay.contents(block)? {
        Some(bytes) => Ok(bytes),
        None => read_block(device, &geometry, block),
    };
    let mmp = superblock.mmp_block().map(|block| (block, 1));
    let own: Vec<_> = log.map.runs().chain(mmp).collect();
    let images = fast_commit::images(superblock, &read, &own, replay.fast_changes())?;
    let fast = FastImages { end: replay.end(), head: replay.head(), images };
    match recovery::check_fits(device, geometry.block_size(), log, &fast) {
        Err(lanefs_journal::Error::TooBig { credits, max }) => {
            let what = format!(
                "fast_commit: fast commits whose replay takes {credits} blocks of the journal, \
                 which has {max} (mount it with the kernel's ext4, which replays them)"
            );
            Err(Unsupported { what }.into())
        }
        other => {
            other?;
            Ok(fast)
        }
    }
}

impl LogReplay<'_> {
    /// Returns the effect of the fast commits, if there are any.
    pub(crate) fn fast(&self) -> Option<&FastImages> {
        self.fast.as_ref()
    }

    /// Writes the blocks whose copies are in the log to `target`, but not the effect of the fast
    /// commits.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn write_copies(&self, target: &dyn Device) -> Result<Recovered, Error> {
        Ok(self.replay.write_ordered(target, self.last)?)
    }

    /// Writes the copies of the log and the effect of the fast commits to `target`, and flushes it.
    /// A crash in the middle may leave only a part of that effect on `target`. So if there are fast
    /// commits, `target` must be a view in memory.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn write(&self, target: &dyn Device) -> Result<Recovered, Error> {
        let mut done = self.write_copies(target)?;
        let Some(fast) = &self.fast else { return Ok(done) };
        for (block, bytes) in &fast.images {
            target.write_at(block.0 * bytes.len() as u64, bytes)?;
        }
        done.blocks += fast.images.len() as u64;
        target.flush()?;
        Ok(done)
    }
}

/// Returns the superblock that a replay writes, if it writes one. `primary` provides the
/// superblock's position.
pub(crate) fn superblock_in(
    replay: &LogReplay<'_>,
    primary: &Superblock,
) -> Result<Option<Superblock>, Error> {
    let place = primary.geometry().super_block();
    let images = replay.fast.iter().flat_map(|fast| &fast.images);
    match images.into_iter().find(|(block, _)| *block == place) {
        Some((_, bytes)) => decode(bytes).map(Some),
        None => copied_superblock(&replay.replay, primary),
    }
}

/// Returns the superblock in the log, if there is one.
fn copied_superblock(
    replay: &Replay<'_>,
    primary: &Superblock,
) -> Result<Option<Superblock>, Error> {
    let block = replay.contents(primary.geometry().super_block())?;
    block.map(|bytes| decode(&bytes)).transpose()
}

/// Decodes the superblock from the block that contains it.
fn decode(block: &[u8]) -> Result<Superblock, Error> {
    let at = SUPERBLOCK.start % block.len().max(1);
    Ok(Superblock::decode(block.get(at..).unwrap_or_default())?)
}

// Reads the superblock, whole or torn by a crash.
//
// The superblock has two sectors of 512 bytes and one checksum over both, and it is written in
// place. A crash during that write leaves one sector old and the other new, and the checksum
// wrong. Such a superblock is accepted as it is on two conditions. First, it passes every other
// check. Second, in all fields that a mount does not change, it agrees with a copy whose checksum
// is right (a backup in another group, or a copy in the log). Each field that a mount changes has
// its old or its new value, and both are valid: the counts are taken from the descriptors, and the
// log is replayed whether or not the superblock requests the replay. A copy in the log must agree
// only in the fields by which the log was found, since the replay writes this copy over the torn
// superblock.

/// The largest number of backups that are compared.
const BACKUPS: usize = 8;

/// The superblock at byte 1024.
#[derive(Debug, Clone)]
pub struct Primary {
    /// The contents of the superblock.
    pub superblock: Superblock,
    /// Whether the superblock's checksum is right.
    pub wholeness: Wholeness,
}

/// Whether a crash tore the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wholeness {
    /// The superblock's checksum is right, or the file system has no checksums.
    Whole,
    /// The superblock's checksum is wrong, but its contents agree with another copy.
    Torn(Witness),
}

/// The copy that a torn superblock agrees with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// The backup at the start of this group.
    Backup(Group),
    /// The newest copy in the log.
    Log,
}

impl Primary {
    /// Reads and checks the superblock. Changes nothing.
    ///
    /// # Errors
    /// [`Error::TooShort`] for a device that has no room for the superblock, [`Error::Corruption`],
    /// [`Error::Device`].
    pub fn read(device: &dyn Device) -> Result<Primary, Error> {
        Primary::read_with(device, None)
    }

    /// Does the same as [`Primary::read`], for a file system whose journal is on `journal`.
    ///
    /// # Errors
    /// The same as for [`Primary::read`].
    pub fn read_with(
        device: &dyn Device,
        journal: Option<&Arc<dyn Device>>,
    ) -> Result<Primary, Error> {
        if device.len() < SUPERBLOCK.end as u64 {
            return Err(Error::TooShort { has: device.len(), needs: SUPERBLOCK.end as u64 });
        }
        let bytes = read_at(device, SUPERBLOCK.start as u64)?;
        let damage = match Superblock::decode(&bytes) {
            Ok(superblock) => return Ok(Primary { superblock, wholeness: Wholeness::Whole }),
            Err(damage) => damage,
        };
        let torn = match &damage {
            Corruption::Superblock { cause: Cause::Checksum { .. } } => {
                Superblock::decode_torn(&bytes).ok()
            }
            _ => None,
        };
        let Some(superblock) = torn else { return Err(damage.into()) };
        match witness(device, journal, &superblock) {
            Some(witness) => Ok(Primary { superblock, wholeness: Wholeness::Torn(witness) }),
            None => Err(damage.into()),
        }
    }
}

/// Returns a backup of the superblock, or a copy in the log, that agrees with `torn`.
fn witness(
    device: &dyn Device,
    journal: Option<&Arc<dyn Device>>,
    torn: &Superblock,
) -> Option<Witness> {
    let geometry = torn.geometry();
    let agrees = |bytes: &[u8]| Superblock::decode(bytes).is_ok_and(|copy| torn.agrees_with(&copy));
    for group in geometry.backups().take(BACKUPS) {
        let start = geometry.group_first_block(group)?.0 << geometry.block_size().bits();
        if read_at(device, start).is_ok_and(|bytes| agrees(&bytes)) {
            return Some(Witness::Backup(group));
        }
    }
    let log = locate(device, torn, journal).ok()??;
    let plan = plan(device, torn, &log).ok()?;
    let copy = superblock_in(&plan, torn).ok()??;
    // The replay writes this copy over the torn superblock. A change of settings may have been
    // interrupted halfway, so only the fields that were used to find the log must agree. If the
    // copy has fewer blocks, the write that makes the file system smaller was torn, and only its
    // second sector is new: the mount drops the log.
    let agrees = torn.check_next(&copy).is_ok() || copy.check_next(torn).is_ok();
    agrees.then_some(Witness::Log)
}

fn read_at(device: &dyn Device, offset: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; SUPERBLOCK.len()];
    device.read_at(offset, &mut bytes)?;
    Ok(bytes)
}
