//! The superblock and its copies.

use crate::fault::Fault;
use crate::place::Place;
use crate::report::Collector;
use crate::volume::Volume;
use lanefs_device::Device;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::superblock::{
    Cause, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock,
};
use lanefs_ondisk::{Block, Corruption, Group, Ino};

/// Bytes that every inode has.
const GOOD_OLD_SIZE: usize = 128;

/// Features whose structures the checker knows, or that have none.
const KNOWN_INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGE_DIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);
const KNOWN_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::QUOTA)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::READONLY)
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);
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

/// Reads the superblock, or if it is damaged its first copy that is not.
pub fn open(device: &dyn Device, report: &Collector) -> Result<Superblock, Cause> {
    match read(device, SUPERBLOCK_OFFSET) {
        Ok(superblock) => Ok(superblock),
        Err(cause) => {
            report.add(Place::Superblock, Fault::Superblock(cause.clone()));
            copy(device).ok_or(cause)
        }
    }
}

fn read(device: &dyn Device, at: u64) -> Result<Superblock, Cause> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(at, &mut bytes).map_err(|_| Cause::Length { len: 0 })?;
    Superblock::decode(&bytes).map_err(|corruption| match corruption {
        Corruption::Superblock { cause } => cause,
        _ => Cause::Length { len: 0 },
    })
}

/// Finds a copy at the places where mke2fs puts the first one, for every block size.
fn copy(device: &dyn Device) -> Option<Superblock> {
    (10..=16).find_map(|bits: u32| {
        let first = u64::from(bits == 10);
        let at = ((8u64 << bits) + first) << bits;
        let found = read(device, at).ok()?;
        (found.geometry().block_size().bits() == bits).then_some(found)
    })
}

/// Checks the fields that no other part checks.
pub fn check(volume: &Volume, report: &Collector) {
    let (raw, geometry) = (volume.raw(), &volume.geometry);
    let features = geometry.features();
    let known = lanefs_ondisk::features::Features {
        compat: features.compat.difference(KNOWN_COMPAT),
        incompat: features.incompat.difference(KNOWN_INCOMPAT),
        ro_compat: features.ro_compat.difference(KNOWN_RO_COMPAT),
    };
    known.names().into_iter().for_each(|name| report.unchecked(format!("feature {name}")));
    if volume.superblock().state().contains(State::ERROR) {
        report.add(Place::Superblock, Fault::MarkedErrors);
    }
    let reserved = volume.superblock().reserved_blocks();
    if reserved > geometry.block_count() / 2 {
        let fault = Fault::Field { what: "the number of reserved blocks", found: reserved };
        report.add(Place::Superblock, fault);
    }
    if !volume.compat(Compat::RESIZE_INODE) && raw.s_reserved_gdt_blocks.get() != 0 {
        report.add(Place::Superblock, Fault::Feature { feature: "resize_inode" });
    }
    for (what, found) in wrong_fields(volume) {
        report.add(Place::Superblock, Fault::Field { what, found });
    }
    let size = volume.device().len() >> geometry.block_size().bits();
    if size < geometry.block_count() {
        let fault = Fault::Truncated { blocks: geometry.block_count(), device: size };
        report.add(Place::Superblock, fault);
    }
}

/// Returns fields that no mount reads, and that e2fsck refuses.
fn wrong_fields(volume: &Volume) -> Vec<(&'static str, u64)> {
    let (raw, geometry) = (volume.raw(), &volume.geometry);
    let mut wrong = Vec::new();
    let mut check = |what, found: u64, right: bool| {
        if !right {
            wrong.push((what, found));
        }
    };
    let room = geometry.inode_size().saturating_sub(GOOD_OLD_SIZE);
    for (what, size) in [
        ("the least extra size of inodes", raw.s_min_extra_isize.get()),
        ("the wanted extra size of inodes", raw.s_want_extra_isize.get()),
    ] {
        check(what, size.into(), room == 0 || usize::from(size) <= room);
    }
    let has_quota = volume.ro_compat(RoCompat::QUOTA);
    for (what, ino) in [
        ("the inode of user quotas", raw.s_usr_quota_inum.get()),
        ("the inode of group quotas", raw.s_grp_quota_inum.get()),
        ("the inode of project quotas", raw.s_prj_quota_inum.get()),
    ] {
        let exists = has_quota && geometry.has_inode(Ino(ino)) && ino > 2;
        check(what, ino.into(), ino == 0 || exists);
    }
    let has_journal = volume.compat(Compat::HAS_JOURNAL) && raw.s_journal_inum.get() != 0;
    let names_device = raw.s_journal_uuid != [0; 16];
    check("the UUID of a journal device", 1, !(has_journal && names_device));
    wrong
}

/// Compares the copies of the superblock with it. Mounts do not write the copies, so only what
/// never changes while mounted has to agree.
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
