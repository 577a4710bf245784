//! The log at mount: where it lies, what it holds, and what the file system is once it is replayed.

use super::options::{Access, MountOptions, Recovery};
use super::primary::{Primary, Wholeness};
use crate::Error;
use crate::object::superblock::SUPERBLOCK;
use crate::plan::extent::{self, Nodes};
use lanefs_device::{Device, OverlayDevice};
use lanefs_journal::recovery::{self, Replay, Source};
use lanefs_journal::{Log, LogMap};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::features::{Incompat, Support};
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::jbd2::{JournalIncompat, JournalSuperblock};
use lanefs_ondisk::superblock::{Geometry, JournalPlace, Superblock};
use lanefs_ondisk::{
    Block, Corruption, Ino, Unsupported,
    checksum::{Checksums, Seed},
    inode as disk,
};

/// Memory that the replay of a read-only mount's log may take: as much as any log is large.
const OVERLAY_CAP: u64 = 2 << 30;

/// A file system as its log left it.
pub(super) struct Opened {
    /// The device, or an overlay of it with what the log holds.
    pub(super) device: Arc<dyn Device>,
    pub(super) log: Option<Log>,
    /// The newest: that of the log, if it holds one.
    pub(super) superblock: Superblock,
    pub(super) access: Access,
}

/// Finds the log and replays it: onto the device, or for a read-only mount onto an overlay.
///
/// Whether and how the file system can be mounted is decided by the superblock that the log leaves,
/// before anything is written.
pub(super) fn open(
    device: Arc<dyn Device>,
    primary: Primary,
    options: &MountOptions,
) -> Result<Opened, Error> {
    let Primary { superblock, wholeness } = primary;
    check_length(&*device, &superblock)?;
    let access = possible_access(&superblock, &*device, options)?;
    let Some(JournalPlace::Inode(ino)) = superblock.journal() else {
        return Ok(Opened { device, log: None, superblock, access });
    };
    // Torn, it may be the older half that says so.
    let is_torn = wholeness != Wholeness::Whole;
    let needs = superblock.features().incompat.contains(Incompat::RECOVER) || is_torn;
    let skips = options.recovery == Recovery::Skip;
    let mut log = match find(&*device, &superblock, ino) {
        Ok(log) => log,
        // What is only read needs no journal, unless it holds the newest state.
        Err(_) if access == Access::ReadOnly && (!needs || skips) => {
            return Ok(Opened { device, log: None, superblock, access });
        }
        Err(error) => return Err(error),
    };
    if skips || (access == Access::ReadOnly && !needs) {
        return Ok(Opened { device, log: Some(log), superblock, access });
    }
    let replay = plan(&*device, &superblock, &log)?;
    let superblock = match superblock_in(&replay, &superblock)? {
        Some(next) => {
            superblock.check_next(&next)?;
            next
        }
        None => superblock,
    };
    check_length(&*device, &superblock)?;
    let access = possible_access(&superblock, &*device, options)?;
    let target: Arc<dyn Device> = match access {
        Access::ReadWrite => device.clone(),
        Access::ReadOnly => Arc::new(OverlayDevice::new(device.clone(), OVERLAY_CAP)),
    };
    let recovered = replay.write(&*target)?;
    if access == Access::ReadWrite && log.superblock.start().is_some() {
        let size = superblock.geometry().block_size();
        let Log { map, superblock: head, .. } = &mut log;
        recovery::mark_empty(&*device, map, size, head, recovered.sequence)?;
    }
    Ok(Opened { device: target, log: Some(log), superblock, access })
}

/// What the log would write home.
pub(super) fn plan<'a>(
    device: &'a dyn Device,
    superblock: &Superblock,
    log: &'a Log,
) -> Result<Replay<'a>, Error> {
    let blocks = superblock.geometry().block_count();
    let source = Source { device, map: &log.map, superblock: &log.superblock, blocks };
    Ok(recovery::plan(&source)?)
}

/// The superblock that the log holds, if it does. `primary` says where superblocks lie.
pub(super) fn superblock_in(
    replay: &Replay<'_>,
    primary: &Superblock,
) -> Result<Option<Superblock>, Error> {
    let Some(block) = replay.contents(primary.geometry().super_block())? else { return Ok(None) };
    let at = SUPERBLOCK.start % block.len();
    let bytes = block.get(at..).unwrap_or_default();
    Ok(Some(Superblock::decode(bytes)?))
}

/// What can be done with this file system on this device, of what was asked for.
fn possible_access(
    superblock: &Superblock,
    device: &dyn Device,
    options: &MountOptions,
) -> Result<Access, Error> {
    let possible = match superblock.support() {
        Support::Refused(names) => return Err(Unsupported { what: names.join(", ") }.into()),
        Support::ReadOnly(_) => Access::ReadOnly,
        Support::ReadWrite => Access::ReadWrite,
    };
    let wants_write = options.access == Access::ReadWrite && options.recovery == Recovery::Replay;
    match possible == Access::ReadWrite && wants_write && !device.is_read_only() {
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

/// Reads nodes straight from the device: before there is a journal to ask.
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

/// Where the journal inode's blocks lie. Only the inode itself and the place of its table are
/// used, since everything else may be newer in the log.
pub(super) fn find(device: &dyn Device, superblock: &Superblock, ino: Ino) -> Result<Log, Error> {
    let geometry = superblock.geometry();
    let place = geometry.inode_place(ino).ok_or(Error::Stale)?;
    let (index, range) = geometry.desc_place(place.group).ok_or(Error::Stale)?;
    let block = geometry.desc_block(index).ok_or(Error::Stale)?;
    let bytes = read_block(device, &geometry, block)?;
    let desc = bytes.get(range).ok_or(Error::Stale)?;
    // Torn by a crash, its checksum may be wrong; the place of the table never changes.
    let desc = GroupDesc::decode(desc, place.group, &geometry, Checksums::None)?;
    let table = Block(desc.inode_table.0 + u64::from(place.table_block));
    let bytes = read_block(device, &geometry, table)?;
    let record = bytes.get(place.offset..place.offset + geometry.inode_size());
    let checksums = superblock.checksums();
    let inode = disk::Inode::decode(record.ok_or(Error::Stale)?, ino, &geometry, checksums)?;
    if !inode.flags.contains(disk::InodeFlags::EXTENTS) {
        return Err(Unsupported { what: "a journal mapped by indirect blocks".into() }.into());
    }
    let seed = checksums.seed().map(|seed| seed.of_inode(ino, inode.generation));
    let nodes = BareNodes { device, geometry, seed, ino };
    let space = geometry.first_data_block().0..geometry.block_count();
    let limits = extent::Limits::new(ino, geometry.block_size(), space);
    let map = extent::load(&inode.block, &nodes, &limits)?;
    let runs: Vec<_> = map.iter().map(|extent| (extent.block, extent.len)).collect();
    let map = LogMap::new(runs, geometry.block_count())?;
    let (first, _) = map.place(0).ok_or(lanefs_journal::Error::BadLogMap { log_block: 0 })?;
    let head = read_block(device, &geometry, first)?;
    let superblock = JournalSuperblock::decode(&head, geometry.block_size(), map.len())
        .map_err(|cause| Corruption::Journal { block: 0, cause })?;
    let mut features = JournalIncompat::empty();
    let wide = geometry.features().incompat.contains(Incompat::BIT64);
    features.set(JournalIncompat::BIT64, wide);
    features.set(JournalIncompat::CSUM_V3, checksums.seed().is_some());
    Ok(Log { map, superblock, features })
}

/// A block, before there is a journal to ask.
pub(super) fn read_block(
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
