//! Reads the parts of a file system and composes them.

use crate::alloc::{Groups, Reuse, Setup, stripe_of};
use crate::fs::Fs;
use crate::mount::find_log::read_block;
use crate::mount::log::Opened;
use crate::mount::options::MountOptions;
use crate::object::fast_commits::FastCommits;
use crate::object::inodes::Inodes;
use crate::object::meta::MetaCache;
use crate::object::mount_ref::MountRef;
use crate::object::objects::Objects;
use crate::object::orphan::Orphans;
use crate::object::pressure::{Pressure, bitmaps_within, images_within};
use crate::object::superblock::SuperState;
use crate::object::table::Tables;
use crate::policy::{Access, FastCommitting};
use crate::verity::VerifiedBlocks;
use crate::volume::Volume;
use lanefs_device::Device;
use lanefs_journal::{Config, Journal};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::AtomicBool;
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::jbd2::JournalIncompat;
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{Block, Ino};
use lanefs_plan::Error;
use lanefs_plan::system::{SystemBlocks, descriptors};

/// Composes the file system whose log was replayed. Its journal accepts no transaction before the
/// committer runs.
pub(super) fn load(opened: Opened, options: &MountOptions) -> Result<Arc<Fs>, Error> {
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
    let objects = Objects {
        mount: MountRef::new(),
        journal,
        tables: Tables::new(&geometry, &descriptors),
        groups: Groups::new(geometry, volume.checksums, descriptors, system, setup),
        inodes: Inodes::new(inodes_room),
        meta: MetaCache::new(meta_room),
        orphans: Orphans::new(),
        superblock: SuperState::new(superblock, image),
        fast,
        names: options.names.clone(),
        on_error: options.on_error,
        read_only: AtomicBool::new(access == Access::ReadOnly),
        discard: options.discard,
        access,
        pressure,
        verified: VerifiedBlocks::default(),
        finishing_orphans: AtomicBool::new(false),
        volume,
    };
    if objects.fast.is_some() {
        objects.mount.note_fast_commits();
    }
    Ok(Arc::new(Fs {
        objects,
        topology: Mutex::new(Rank::Topology, ()),
        growing: Mutex::new(Rank::Topology, ()),
        atime: options.atime,
        synchronous: options.synchronous,
        cache_bytes: options.cache_bytes,
    }))
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
