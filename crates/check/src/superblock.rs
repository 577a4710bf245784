//! Checks the superblock and its copies.

use crate::backup::{self, read};
use crate::fault::Fault;
use crate::field::{Feature, Field};
use crate::named::FIRST_INO;
use crate::place::Place;
use crate::report::Collector;
use crate::volume::Volume;
use lanefs_device::Device;
use lanefs_ondisk::features::{
    Compat, Features, Incompat, RoCompat, WRITABLE_INCOMPAT, WRITABLE_RO_COMPAT,
};
use lanefs_ondisk::quota::Kind;
use lanefs_ondisk::superblock::{
    Cause, Geometry, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use lanefs_ondisk::{Block, Group, Ino};
use zerocopy::FromBytes;

/// The size in bytes of the part that every inode has.
const GOOD_OLD_SIZE: usize = 128;
/// The reserved inode of the user quota file.
pub const USER_QUOTAS: u32 = 3;
/// The reserved inode of the group quota file.
pub const GROUP_QUOTAS: u32 = 4;
/// The number that stands for the encoding UTF-8 12.1, the only encoding for directories that
/// ignore case.
const UTF8_12_1: u16 = 1;
/// The largest size of a descriptor that e2fsck accepts.
const MOST_DESCRIPTOR_SIZE: u16 = 1024;
/// The smallest valid extra size of an inode except 0.
const LEAST_EXTRA: usize = 4;

/// Features that the checker knows, or that change no structure.
const KNOWN_RO_COMPAT: RoCompat =
    WRITABLE_RO_COMPAT.union(RoCompat::READONLY).union(RoCompat::SHARED_BLOCKS);
const KNOWN_COMPAT: Compat = Compat::DIR_PREALLOC
    .union(Compat::IMAGIC_INODES)
    .union(Compat::HAS_JOURNAL)
    .union(Compat::EXT_ATTR)
    .union(Compat::RESIZE_INODE)
    .union(Compat::DIR_INDEX)
    .union(Compat::SPARSE_SUPER2)
    .union(Compat::FAST_COMMIT)
    .union(Compat::STABLE_INODES)
    .union(Compat::ORPHAN_FILE);

/// Reads the superblock. If the only damage is in a field on which no other structure depends,
/// mends that field in memory. After any other damage, reads the first intact copy.
pub fn open(device: &dyn Device, report: &Collector) -> Result<(Superblock, Counts), Cause> {
    match read_primary(device) {
        Ok(superblock) => match with_revision(superblock.raw()) {
            Some(revised) => {
                let fault = Fault::Field { field: Field::Revision, found: 0 };
                report.add(Place::Superblock, fault);
                Ok((revised, Counts::Right))
            }
            None => Ok((superblock, Counts::Right)),
        },
        Err(cause) => {
            report.add(Place::Superblock, Fault::Superblock(cause.clone()));
            if let Some(repaired) = without(device, &cause) {
                return Ok((repaired, Counts::Right));
            }
            backup::copy(device).map(|copy| (copy, Counts::Old)).ok_or(cause)
        }
    }
}

/// Whether the superblock's counts have to agree with the file system's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// The counts have to agree.
    Right,
    /// The counts may be old. They come from a copy, which mounts do not update, or from the time
    /// before a crash.
    Old,
}

/// If a superblock of revision 0 has features or large inodes, returns it with revision 1. Revision
/// 0 has neither, and its inodes would be read at wrong offsets.
pub fn with_revision(raw: &RawSuperblock) -> Option<Superblock> {
    let features =
        [raw.s_feature_compat, raw.s_feature_incompat, raw.s_feature_ro_compat].map(|f| f.get());
    let has_more = features != [0; 3] || usize::from(raw.s_inode_size.get()) > GOOD_OLD_SIZE;
    if raw.s_rev_level.get() != 0 || !has_more {
        return None;
    }
    let mut raw = raw.clone();
    raw.s_rev_level.set(1);
    Superblock::from_raw(raw).ok()
}

/// Returns the superblock with a damaged field set to a valid value, if no other structure depends
/// on the field.
fn without(device: &dyn Device, cause: &Cause) -> Option<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let mut raw = RawSuperblock::read_from_bytes(&bytes).ok()?;
    match cause {
        Cause::LastOrphan { .. } => raw.s_last_orphan.set(0),
        // No program makes descriptors of another size.
        Cause::DescSize { .. } => raw.s_desc_size.set(64),
        Cause::FirstInode { .. } => raw.s_first_ino.set(FIRST_INO),
        // `named` never takes the root for the orphan file, so the right inode is found, if there
        // is one.
        Cause::OrphanFileInode { .. } => raw.s_orphan_file_inum.set(Ino::ROOT.0),
        Cause::FreeInodes { .. } => raw.s_free_inodes_count.set(0),
        Cause::FreeBlocks { .. } => {
            raw.s_free_blocks_count_lo.set(0);
            raw.s_free_blocks_count_hi.set(0);
        }
        Cause::ReservedBlocks { .. } => {
            raw.s_r_blocks_count_lo.set(0);
            raw.s_r_blocks_count_hi.set(0);
        }
        Cause::JournalPlace { device, .. } if *device != 0 => raw.s_journal_dev.set(0),
        Cause::JournalPlace { .. } => raw.s_journal_inum.set(Ino::JOURNAL.0),
        _ => return None,
    }
    Superblock::from_raw(raw).ok()
}

/// Reads the superblock itself, not a copy.
pub fn read_primary(device: &dyn Device) -> Result<Superblock, Cause> {
    read(device, SUPERBLOCK_OFFSET)
}

/// Returns the names of the features that are not known.
pub fn unknown_features(geometry: &Geometry) -> Vec<String> {
    let features = geometry.features();
    let unknown = Features {
        compat: features.compat.difference(KNOWN_COMPAT),
        incompat: features.incompat.difference(WRITABLE_INCOMPAT),
        ro_compat: features.ro_compat.difference(KNOWN_RO_COMPAT),
    };
    unknown.names()
}

/// Checks the fields that no other part checks.
pub fn check(volume: &Volume, report: &Collector) {
    let (raw, geometry) = (volume.raw(), &volume.geometry);
    let unknown = unknown_features(geometry);
    unknown.iter().for_each(|name| report.unchecked(format!("feature {name}")));
    if volume.superblock().state().contains(State::ERROR) {
        report.add(Place::Superblock, Fault::MarkedErrors);
    }
    let reserved = volume.superblock().reserved_blocks();
    if reserved > geometry.block_count() / 2 {
        let fault = Fault::Field { field: Field::ReservedBlocks, found: reserved };
        report.add(Place::Superblock, fault);
    }
    if !volume.compat(Compat::RESIZE_INODE) && raw.s_reserved_gdt_blocks.get() != 0 {
        report.add(Place::Superblock, Fault::Feature { feature: Feature::ResizeInode });
    }
    if volume.compat(Compat::RESIZE_INODE) && volume.incompat(Incompat::META_BG) {
        report.add(Place::Superblock, Fault::ResizeInode);
    }
    for (field, found) in wrong_fields(volume) {
        report.add(Place::Superblock, Fault::Field { field, found });
    }
}

/// Returns whether the device is shorter than the file system. If it is, nothing else is checked,
/// because a superblock with a few wrong bytes can state a size that would take years to check.
pub fn is_truncated(volume: &Volume, report: &Collector) -> bool {
    let device = volume.device().len() >> volume.geometry.block_size().bits();
    let blocks = volume.geometry.block_count();
    if device < blocks {
        report.add(Place::Superblock, Fault::Truncated { blocks, device });
    }
    device < blocks
}

/// Returns the fields with values that e2fsck refuses.
fn wrong_fields(volume: &Volume) -> Vec<(Field, u64)> {
    let (raw, geometry) = (volume.raw(), &volume.geometry);
    let mut wrong = Vec::new();
    let mut check = |field, found: u64, right: bool| {
        if !right {
            wrong.push((field, found));
        }
    };
    // Without `64bit`, the kernel does not use the descriptor size in the superblock, but e2fsck
    // checks it.
    if !volume.incompat(Incompat::BIT64) {
        let size = raw.s_desc_size.get();
        let is_valid = size == 0 || (size.is_power_of_two() && size <= MOST_DESCRIPTOR_SIZE);
        check(Field::DescriptorSize, size.into(), is_valid);
    }
    let room = geometry.inode_size().saturating_sub(GOOD_OLD_SIZE);
    for (field, size) in [
        (Field::LeastExtraSize, raw.s_min_extra_isize.get()),
        (Field::WantedExtraSize, raw.s_want_extra_isize.get()),
    ] {
        let is_valid = (LEAST_EXTRA..=room).contains(&size.into()) && size.is_multiple_of(4);
        check(field, size.into(), room == 0 || size == 0 || is_valid);
    }
    let has_quotas = volume.ro_compat(RoCompat::QUOTA);
    for (kind, ino, reserved) in [
        (Kind::User, raw.s_usr_quota_inum.get(), Some(USER_QUOTAS)),
        (Kind::Group, raw.s_grp_quota_inum.get(), Some(GROUP_QUOTAS)),
        (Kind::Project, raw.s_prj_quota_inum.get(), None),
    ] {
        let is_any = ino >= geometry.first_ino().0
            && geometry.has_inode(Ino(ino))
            && volume.superblock().orphan_file() != Some(Ino(ino));
        let is_own = match has_quotas {
            // A quota file in any other inode is a fault, because e2fsck offers to move it to the
            // reserved inode.
            true => reserved.map_or(is_any, |own| ino == own),
            // e2fsck takes another number of project quotas for an inode in use.
            false => reserved.is_some() && is_any || [USER_QUOTAS, GROUP_QUOTAS].contains(&ino),
        };
        check(Field::Quotas(kind), ino.into(), ino == 0 || is_own);
    }
    let encoding = raw.s_encoding.get();
    let folds = volume.incompat(Incompat::CASEFOLD);
    check(Field::Encoding, encoding.into(), !folds || encoding == UTF8_12_1);
    let has_sums = volume.ro_compat(RoCompat::METADATA_CSUM);
    let seed = raw.s_checksum_seed.get();
    check(Field::ChecksumSeed, seed.into(), has_sums || !volume.incompat(Incompat::CSUM_SEED));
    let has_journal = volume.compat(Compat::HAS_JOURNAL);
    let is_inside = !has_journal || raw.s_journal_inum.get() != 0;
    let names_device = raw.s_journal_uuid != [0; 16];
    check(Field::JournalDeviceUuid, 1, !(is_inside && names_device));
    let ino = raw.s_journal_inum.get();
    check(Field::JournalInode, ino.into(), ino == 0 || has_journal);
    wrong
}

/// Compares the superblock with its copies. Mounts do not update the copies, so only the fields
/// that never change while the file system is mounted have to agree.
pub fn check_copies(volume: &Volume, report: &Collector) {
    for group in volume.geometry.backups() {
        let Some(start) = volume.geometry.group_first_block(group) else { continue };
        let place = Place::Backup { group };
        match read_copy(volume, start) {
            Some(copy) => compare(volume, report, group, &copy),
            None => report.add(place, Fault::Differs { what: "magic or checksum" }),
        }
    }
}

fn read_copy(volume: &Volume, start: Block) -> Option<RawSuperblock> {
    let at = start.0 << volume.geometry.block_size().bits();
    read(&**volume.device(), at).ok().map(|copy| copy.raw().clone())
}

fn compare(volume: &Volume, report: &Collector, group: Group, copy: &RawSuperblock) {
    let raw = volume.raw();
    let pairs = [
        ("the number of blocks", raw.s_blocks_count_lo.get(), copy.s_blocks_count_lo.get()),
        ("the number of inodes", raw.s_inodes_count.get(), copy.s_inodes_count.get()),
        ("the blocks of a group", raw.s_blocks_per_group.get(), copy.s_blocks_per_group.get()),
        ("the inodes of a group", raw.s_inodes_per_group.get(), copy.s_inodes_per_group.get()),
    ];
    for (what, own, other) in pairs {
        if own != other {
            report.add(Place::Backup { group }, Fault::Differs { what });
        }
    }
    if raw.s_uuid != copy.s_uuid {
        report.add(Place::Backup { group }, Fault::Differs { what: "the UUID" });
    }
}
