//! Mounting and unmounting: the order in which a file system is trusted, and left.

use super::log::{self, Opened, read_block};
use super::primary::Primary;
use crate::alloc::{Groups, Setup, stripe_of};
use crate::fs::Fs;
use crate::object::home::{Counting, Home, Keepers};
use crate::object::inodes::Inodes;
use crate::object::meta::MetaCache;
use crate::object::orphan::Orphans;
use crate::object::pressure::Pressure;
use crate::object::superblock::{SUPERBLOCK, SuperState};
use crate::object::table::Tables;
use crate::plan::extent;
use crate::volume::system::SystemBlocks;
use crate::{Access, Error, MountOptions};
use lanefs_device::Device;
use lanefs_journal::{Config, Journal};
use lanefs_lanes::sync::atomic::AtomicBool;
use lanefs_lanes::sync::{Arc, thread};
use lanefs_lanes::{Mutex, Rank};
use lanefs_ondisk::dirent::DirFormat;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::group_desc::GroupDesc;
use lanefs_ondisk::hash::{HashVersion, NameBytes, NameHasher};
use lanefs_ondisk::superblock::{
    Geometry, JournalPlace, OrphanEntries, Recovery as NeedsRecovery, State, SuperFlags, Superblock,
};
use lanefs_ondisk::{
    Block, Corruption, FileType, Group, Ino, Unsupported, checksum::Checksums, inode as disk,
};

/// A mounted file system and the thread that commits its transactions.
///
/// Dropping it does what [`Mount::close`] does, but has nobody to tell of an error.
pub struct Mount {
    keepers: Option<Keepers>,
    fs: Arc<Fs>,
    committer: Option<thread::JoinHandle<()>>,
    /// Whether the file system was clean when it was mounted, and whether it had errors: a mount
    /// never makes it look better than that.
    found: State,
}

impl Mount {
    /// Opens the file system on `device`: checks it, replays its log, finishes its orphans.
    ///
    /// A read-only mount writes nothing: a dirty log is replayed in memory. A file system with
    /// features that can only be read is mounted read-only, whatever was asked for.
    pub fn open(device: Arc<dyn Device>, options: MountOptions) -> Result<Mount, Error> {
        let primary = Primary::read(&*device)?;
        let Opened { device, log, superblock, access } = log::open(device, primary, &options)?;
        let geometry = superblock.geometry();
        let checksums = superblock.checksums();
        let aborted = log.as_ref().is_some_and(|log| log.superblock.errno() != 0);
        let descriptors = read_descriptors(&*device, &geometry, checksums)?;
        let runs: Vec<(Block, u32)> = log.iter().flat_map(|log| log.map.runs()).collect();
        let own_files = own_files(&superblock);
        check_log_place(&geometry, &descriptors, &runs)?;
        let system = Arc::new(SystemBlocks::new(&geometry, &descriptors, runs));
        let journal = Journal::start(Config {
            device: device.clone(),
            block_size: geometry.block_size(),
            log: log.filter(|_| access == Access::ReadWrite),
            commit_interval: options.commit_interval,
            image_cap: crate::object::pressure::images_within(options.cache_bytes),
        })?;
        let image = read_block(&*device, &geometry, geometry.super_block())?;
        // As the kernel's statfs counts: what no file can use, the journal included.
        let overhead = system.count();
        let reserved = superblock.reserved_blocks().saturating_add(extent_reserve(&superblock));
        let hasher = name_hasher(&superblock)?;
        let one_lock = options.names.clone().one_lock();
        let counting = match one_lock {
            Some(_) => Counting::InOneWord,
            None => Counting::ByLane,
        };
        let pressure = Pressure::new(options.cache_bytes, geometry.block_size().bytes() as u64);
        let (inodes_room, meta_room) = pressure.room();
        let fs = Arc::new(Fs {
            home: Home::new(counting),
            groups: Groups::new(
                geometry,
                checksums,
                descriptors.clone(),
                system.clone(),
                Setup {
                    reserved,
                    policies: options.policies,
                    row: stripe_of(&superblock, options.stripe, device.row_len()),
                    bitmap_bytes: crate::object::pressure::bitmaps_within(options.cache_bytes),
                },
            ),
            inodes: Inodes::new(one_lock, inodes_room),
            tables: Tables::new(&geometry, &descriptors),
            meta: MetaCache::new(meta_room),
            orphans: Orphans::new(),
            dir_format: dir_format(&superblock),
            hasher,
            dir_index: superblock.features().compat.contains(Compat::DIR_INDEX),
            dir_nlink: superblock.features().ro_compat.contains(RoCompat::DIR_NLINK),
            reserved_blocks: reserved,
            fsid: fold_uuid(&superblock.uuid()),
            max_size: max_file_size(&superblock),
            superblock: SuperState::new(superblock, image),
            topology: Mutex::new(Rank::Topology, ()),
            names: options.names.clone(),
            atime: options.atime,
            overwrite: options.policies.overwrite,
            on_error: options.on_error,
            cache_bytes: options.cache_bytes,
            read_only: AtomicBool::new(access == Access::ReadOnly),
            own_files,
            access,
            pressure,
            finishing_orphans: AtomicBool::new(false),
            device,
            geometry,
            checksums,
            journal,
            system,
            descriptors,
            overhead,
        });
        let keepers = Keepers::new(&fs);
        check_root(&fs)?;
        let found = fs.superblock.snapshot().state();
        let mut mount = Mount { keepers: Some(keepers), fs, committer: None, found };
        if access == Access::ReadWrite {
            if aborted {
                mount.found |= State::ERROR;
            }
            mount.mark_in_use()?;
            if aborted {
                mount.fs.journal.forget_abort()?;
            }
            mount.begin_writing()?;
        }
        Ok(mount)
    }

    /// The operations.
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Marks the file system as in use, durably.
    fn mark_in_use(&self) -> Result<(), Error> {
        let orphan_file = self.fs.superblock.snapshot().orphan_file();
        let (now, found) = (seconds(), self.found);
        self.fs.write_superblock(|superblock| {
            superblock.set_mount_time(now);
            superblock.set_write_time(now);
            superblock.set_mount_count(superblock.mount_count().saturating_add(1));
            if superblock.journal().is_some() {
                let orphans = match orphan_file {
                    Some(_) => OrphanEntries::Present,
                    None => OrphanEntries::Absent,
                };
                superblock.set_dirty_features(NeedsRecovery::Needed, orphans);
                superblock.set_state(found);
            } else {
                // Nothing says so but the state.
                superblock.set_state(found - State::VALID);
            }
        })
    }

    /// Starts the committer, and finishes what the last mount left.
    fn begin_writing(&mut self) -> Result<(), Error> {
        let fs = self.fs.clone();
        let superblock = fs.superblock.snapshot();
        let serving = fs.clone();
        let committer = thread::Builder::new()
            .name("lanefs-commit".into())
            .spawn(move || serving.journal.serve(&*serving))
            .map_err(|_| Error::Busy)?;
        self.committer = Some(committer);
        // The close of this mount that failed is to remember damage, as any other.
        fs.finish_orphans(superblock.orphan_file(), superblock.last_orphan())
            .inspect_err(|error| fs.note_error(error))
    }

    /// Commits, writes everything home, marks the file system clean.
    pub fn close(mut self) -> Result<(), Error> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        let Some(committer) = self.committer.take() else { return Ok(()) };
        self.fs.drop_windows();
        let stopped = self.fs.journal.stop();
        let ended = committer.join();
        let was_read_only = self.fs.is_read_only();
        self.fs.become_read_only();
        stopped?;
        if ended.is_err() {
            return Err(Error::Busy);
        }
        let (orphans_left, found) = (self.fs.orphans_left(), self.found);
        let (blocks, inodes) = self.fs.groups.free_counts();
        self.fs.write_superblock(|superblock| {
            superblock.set_write_time(seconds());
            superblock.set_free_blocks(blocks);
            superblock.set_free_inodes(u32::try_from(inodes).unwrap_or(u32::MAX));
            superblock.set_dirty_features(NeedsRecovery::NotNeeded, orphans_left);
            if !was_read_only && superblock.journal().is_none() {
                superblock.set_state(superblock.state() | (found & State::VALID));
            }
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nobody to tell: what was promised by fsync is in the log all the same.
        let _ = self.shut_down();
        // From here on the end of a nameless inode is left to the next mount.
        self.keepers = None;
    }
}

impl Fs {
    /// Writes the superblock outside of the journal, durably.
    fn write_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<(), Error> {
        let block = self.superblock.update(change);
        let at = SUPERBLOCK.start % block.len();
        let bytes = &block[at..at + SUPERBLOCK.len()];
        self.device.write_at(SUPERBLOCK.start as u64, bytes)?;
        self.device.flush()?;
        Ok(())
    }
}

/// The kernel refuses a root that is no directory, or has nothing in it. Files that an ext3 had before it
/// became an ext4 are refused one by one; if the root directory is one of them, there is nothing that
/// could be done.
fn check_root(fs: &Arc<Fs>) -> Result<(), Error> {
    let attr = fs.root()?.attr();
    let (kind, size, sectors) = (attr.file_type, attr.size, attr.sectors);
    if kind != FileType::Directory || size == 0 || sectors == 0 {
        let cause = disk::Cause::NotARoot { kind, size, sectors };
        return Err(Corruption::Inode { ino: Ino::ROOT, cause }.into());
    }
    let flags = disk::InodeFlags::from_bits_retain(attr.flags);
    match flags.contains(disk::InodeFlags::EXTENTS) {
        true => Ok(()),
        false => {
            Err(Unsupported { what: "a root directory mapped by indirect blocks".into() }.into())
        }
    }
}

/// The files of the file system itself that the superblock names.
fn own_files(superblock: &Superblock) -> Vec<Ino> {
    let journal = match superblock.journal() {
        Some(JournalPlace::Inode(ino)) => Some(ino),
        _ => None,
    };
    superblock.orphan_file().into_iter().chain(journal).collect()
}

/// A log that lies on other metadata would be written over it.
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
fn read_descriptors(
    device: &dyn Device,
    geometry: &Geometry,
    checksums: Checksums,
) -> Result<Vec<GroupDesc>, Error> {
    // As they come: the number of groups is only what the superblock says.
    let mut descriptors = Vec::new();
    for index in 0..geometry.desc_blocks() {
        let block = geometry.desc_block(index).ok_or(Error::Stale)?;
        let bytes = read_block(device, geometry, block)?;
        for record in bytes.chunks_exact(geometry.desc_size()) {
            let group = Group(descriptors.len() as u32);
            if group.0 < geometry.group_count() {
                let descriptor = GroupDesc::decode(record, group, geometry, checksums)?;
                descriptors.try_reserve(1).map_err(|_| Error::TooManyGroups)?;
                descriptors.push(descriptor);
            }
        }
    }
    Ok(descriptors)
}

/// Blocks kept back for the nodes of extent trees, so that a write into allocated space never fails
/// for lack of one: as many as the kernel's ext4 keeps, which its statfs shows.
fn extent_reserve(superblock: &Superblock) -> u64 {
    (superblock.geometry().block_count() / 50).min(4096)
}

fn dir_format(superblock: &Superblock) -> DirFormat {
    let features = superblock.features();
    DirFormat {
        block_size: superblock.geometry().block_size(),
        has_file_types: features.incompat.contains(Incompat::FILETYPE),
        has_checksums: features.ro_compat.contains(RoCompat::METADATA_CSUM),
        has_large_dirs: features.incompat.contains(Incompat::LARGE_DIR),
        inodes: superblock.geometry().inode_count(),
    }
}

fn name_hasher(superblock: &Superblock) -> Result<NameHasher, Error> {
    let byte = superblock.hash_version();
    let Some(version) = HashVersion::from_byte(byte) else {
        return Err(Unsupported { what: format!("directory hash {byte}") }.into());
    };
    let bytes = match superblock.flags().contains(SuperFlags::UNSIGNED_HASH) {
        true => NameBytes::Unsigned,
        false => NameBytes::Signed,
    };
    Ok(NameHasher { version, bytes, seed: superblock.hash_seed() })
}

/// The largest size that this file system's features can record.
fn max_file_size(superblock: &Superblock) -> u64 {
    let geometry = superblock.geometry();
    let mapped = u64::from(extent::END) << geometry.block_size().bits();
    let features = superblock.features().ro_compat;
    let most = if features.contains(RoCompat::LARGE_FILE) { u64::MAX } else { (1 << 31) - 1 };
    // Without huge_file the space taken is counted in 32 bits of sectors.
    let counted =
        if features.contains(RoCompat::HUGE_FILE) { u64::MAX } else { (1 << 41) - (1 << 20) };
    mapped.min(most).min(counted)
}

fn fold_uuid(uuid: &[u8; 16]) -> u64 {
    let half = |at: usize| {
        uuid[at..at + 8].iter().rev().fold(0u64, |word, byte| (word << 8) | u64::from(*byte))
    };
    half(0) ^ half(8)
}

fn seconds() -> u64 {
    crate::ops::read::now().secs.try_into().unwrap_or(0)
}
