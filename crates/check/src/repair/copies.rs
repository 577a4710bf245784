//! Recovers the structures that are needed to read all others. Damaged superblocks and descriptors
//! are restored from their copies, and the log is replayed.

use super::compare::{faults, findings, silent};
use super::log;
use super::mender::{Action, Fast};
use super::volume::put_superblock;
use crate::backup;
use crate::checker::Error;
use crate::fault::Fault;
use crate::groups::{self, Groups, NOWHERE};
use crate::journal::LogBlocks;
use crate::named;
use crate::place::Place;
use crate::report::Finding;
use crate::superblock;
use crate::volume::Volume;
use lanefs_device::{Device, OverlayDevice};
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::superblock::{
    Geometry, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use lanefs_ondisk::{Block, BlockSize, Group, Unsupported};
use std::collections::HashSet;
use std::sync::Arc;
use zerocopy::FromBytes;

/// Recovers superblock, descriptors and log on `device`. Returns the first block of the log, and the
/// result of [`log::replay`].
pub fn recover(
    device: &Arc<OverlayDevice>,
    fast: Fast<'_>,
    actions: &mut Vec<Action>,
) -> Result<(Option<Block>, bool), Error> {
    let Some(volume) = restore(device, actions)? else { return Ok((None, false)) };
    let is_unasked = log::replay(device, &volume, fast, actions)?;
    // The replay may bring an older inode of the journal back.
    log::restore(device, &volume, actions);
    let groups = Groups::read(&volume, &silent());
    Ok((LogBlocks::of(&volume, &groups).and_then(|log| log.head()), is_unasked))
}

/// Recovers superblock, descriptors, and the inode of the journal. Returns the file system; of a
/// truncated device, returns `None`.
fn restore(
    device: &Arc<OverlayDevice>,
    actions: &mut Vec<Action>,
) -> Result<Option<Volume>, Error> {
    let superblock = recover_superblock(device, actions)?;
    let volume = Volume::new(device.clone(), superblock);
    if superblock::is_truncated(&volume, &silent()) {
        return Ok(None);
    }
    recover_descriptors(device, &volume, actions);
    let volume = guess_reserved(device, volume, actions);
    guess_descriptor(device, &volume, actions);
    let volume = recover_journal(device, volume, actions);
    log::restore(device, &volume, actions);
    Ok(Some(volume))
}

/// Corrects the number of the journal's inode in the superblock, if the inode with this number has
/// no log.
fn recover_journal(
    device: &Arc<OverlayDevice>,
    volume: Volume,
    actions: &mut Vec<Action>,
) -> Volume {
    let groups = Groups::read(&volume, &silent());
    let Some(superblock) = named::with_journal(&volume, &groups) else { return volume };
    put_superblock(&**device, &superblock);
    let what = "names the reserved inode of the journal again".into();
    actions.push(Action { place: Place::Superblock, what });
    Volume::new(device.clone(), superblock)
}

/// Returns the block size of a file system whose superblock was recovered. Fails if it has unknown
/// features.
pub fn block_size(device: &dyn Device) -> Result<BlockSize, Error> {
    let (superblock, _) = superblock::open(device, &silent()).map_err(Error::NoSuperblock)?;
    match superblock::unknown_features(&superblock.geometry()).join(", ") {
        names if names.is_empty() => Ok(superblock.geometry().block_size()),
        what => Err(Error::Unsupported(Unsupported { what })),
    }
}

fn recover_superblock(
    device: &Arc<OverlayDevice>,
    actions: &mut Vec<Action>,
) -> Result<Superblock, Error> {
    let mut act = |what: &str| {
        actions.push(Action { place: Place::Superblock, what: what.into() });
    };
    let is_whole = superblock::read_primary(&**device)
        .is_ok_and(|found| superblock::with_revision(found.raw()).is_none());
    let (found, _) = match superblock::open(&**device, &silent()) {
        Ok(found) => found,
        Err(cause) => {
            let found = reseal(device).ok_or(Error::NoSuperblock(cause))?;
            act("its checksum is corrected: it has no copy, and it fits the image");
            return Ok(found);
        }
    };
    if !is_whole {
        put_superblock(&**device, &found);
        act("restored");
    }
    let Some(copy) = backup::copy(&**device) else {
        let guessed = guess_features(device, &found);
        if guessed.is_some() {
            act("has the features again that its files use");
        }
        return Ok(guessed.unwrap_or(found));
    };
    if layout(found.raw()) == layout(copy.raw()) {
        return Ok(found);
    }
    // The two superblocks differ. The repair uses the superblock with which the image has fewer
    // faults.
    let other = Arc::new(device.fork());
    put_superblock(&*other, &copy);
    if faults(other) < faults(device.clone()) {
        put_superblock(&**device, &copy);
        act("restored from its copy, whose layout fits the image");
        return Ok(copy);
    }
    Ok(found)
}

/// The features that determine how a file with such a flag is read.
const OF_FILES: [(Incompat, InodeFlags); 3] = [
    (Incompat::EXTENTS, InodeFlags::EXTENTS),
    (Incompat::INLINE_DATA, InodeFlags::INLINE_DATA),
    (Incompat::EA_INODE, InodeFlags::EA_INODE),
];

/// Adds features to a superblock without a copy: each of [`OF_FILES`] with which more files that
/// have its flag are without fault than with one, and types in names if the image then has fewer
/// faults. The flag of a single file may be the damage.
fn guess_features(device: &Arc<OverlayDevice>, found: &Superblock) -> Option<Superblock> {
    let with = |incompat: Incompat| {
        let mut raw = found.raw().clone();
        raw.s_feature_incompat.set(incompat.bits());
        Superblock::from_raw(raw).ok()
    };
    let view = |incompat| {
        let view = Arc::new(device.fork());
        put_superblock(&*view, &with(incompat)?);
        Some(view)
    };
    let old = Incompat::from_bits_retain(found.raw().s_feature_incompat.get());
    let lacks = |flag: InodeFlags| {
        move |finding: &&Finding| match finding.fault {
            Fault::Flags { flags } => InodeFlags::from_bits_retain(flags).contains(flag),
            _ => false,
        }
    };
    let before = findings(device.clone())?.findings;
    let is_lost = |(feature, flag): &(Incompat, InodeFlags)| {
        !old.contains(*feature) && before.iter().any(|finding| lacks(*flag)(&finding))
    };
    let lost: Vec<_> = OF_FILES.into_iter().filter(is_lost).collect();
    let mut all = lost.iter().fold(old, |all, (feature, _)| all | *feature);
    let named = all | Incompat::FILETYPE;
    if !before.is_empty() && named != all && faults(view(named)?) < faults(view(all)?) {
        all = named;
    }
    if all == old {
        return None;
    }
    let after = findings(view(all)?)?.findings;
    let faulty: HashSet<_> = after.iter().filter_map(|finding| finding.place.ino()).collect();
    let nameless = before.iter().filter(|finding| finding.fault == Fault::NoName);
    let nameless: HashSet<_> = nameless.filter_map(|finding| finding.place.ino()).collect();
    for (feature, flag) in lost {
        let files = before.iter().filter(lacks(flag)).filter_map(|finding| finding.place.ino());
        // The value of an attribute has no name.
        let files = files.filter(|ino| flag != InodeFlags::EA_INODE || nameless.contains(ino));
        let (broken, whole): (Vec<_>, Vec<_>) = files.partition(|ino| faulty.contains(ino));
        if broken.len() >= whole.len() {
            all -= feature;
        }
    }
    let superblock = with(all).filter(|_| all != old)?;
    put_superblock(&**device, &superblock);
    Some(superblock)
}

/// A superblock with a wrong checksum is trusted if the image has at most this many faults.
const FEW_FAULTS: u64 = 50;

/// Corrects the checksum of a superblock that has no valid copy, if the image has few faults with
/// this superblock.
fn reseal(device: &Arc<OverlayDevice>) -> Option<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let raw = RawSuperblock::read_from_bytes(&bytes).ok()?;
    let superblock = superblock::with_revision(&raw).or_else(|| Superblock::from_raw(raw).ok())?;
    let other = Arc::new(device.fork());
    put_superblock(&*other, &superblock);
    (faults(other) <= FEW_FAULTS).then(|| {
        put_superblock(&**device, &superblock);
        superblock
    })
}

/// Returns the fields that a superblock and its copies must agree on. They determine where the
/// structures are and how they are read, and mounts hardly ever change them.
fn layout(raw: &RawSuperblock) -> Vec<u32> {
    let incompat = Incompat::META_BG | Incompat::BIT64 | Incompat::FLEX_BG | Incompat::EXTENTS;
    let incompat = incompat | Incompat::FILETYPE | Incompat::CSUM_SEED | Incompat::INLINE_DATA;
    let ro_compat = RoCompat::METADATA_CSUM | RoCompat::SPARSE_SUPER;
    let mut fields = vec![
        raw.s_first_data_block.get(),
        raw.s_log_block_size.get(),
        raw.s_log_cluster_size.get(),
        raw.s_blocks_per_group.get(),
        raw.s_clusters_per_group.get(),
        raw.s_inodes_per_group.get(),
        raw.s_inode_size.get().into(),
        raw.s_desc_size.get().into(),
        raw.s_first_ino.get(),
        raw.s_rev_level.get(),
        raw.s_first_meta_bg.get(),
        raw.s_feature_incompat.get() & incompat.bits(),
        raw.s_feature_ro_compat.get() & ro_compat.bits(),
        raw.s_checksum_seed.get(),
        raw.s_blocks_count_lo.get(),
        raw.s_blocks_count_hi.get(),
        raw.s_inodes_count.get(),
        raw.s_reserved_gdt_blocks.get().into(),
        raw.s_flags.get(),
        raw.s_mmp_block.get() as u32,
        raw.s_journal_inum.get(),
        raw.s_usr_quota_inum.get(),
        raw.s_grp_quota_inum.get(),
        raw.s_prj_quota_inum.get(),
        raw.s_orphan_file_inum.get(),
        raw.s_feature_compat.get(),
    ];
    fields.extend(raw.s_uuid.iter().map(|byte| u32::from(*byte)));
    fields.extend(raw.s_hash_seed.iter().map(|word| word.get()));
    fields
}

/// If a descriptor has invalid block numbers, replaces them with those of its copy. Does the same
/// for valid descriptors that differ from their copies, but only if the image has fewer faults
/// afterwards.
fn recover_descriptors(device: &Arc<OverlayDevice>, volume: &Volume, actions: &mut Vec<Action>) {
    let changed: Vec<(Group, GroupDesc)> = (0..volume.geometry.group_count())
        .filter_map(|group| Some((Group(group), other_places(volume, Group(group))?)))
        .collect();
    if changed.is_empty() {
        return;
    }
    let groups = Groups::read(volume, &silent());
    let (doubted, lost): (Vec<_>, Vec<_>) = changed.into_iter().partition(|(group, _)| {
        let found = groups.get(*group);
        found.is_some_and(|desc| ![desc.block_bitmap, desc.inode_bitmap].contains(&NOWHERE))
    });
    let with = |device: &dyn Device, changed: &[(Group, GroupDesc)]| {
        for (group, desc) in changed {
            put_descriptor(device, volume, *group, desc);
        }
    };
    with(&**device, &lost);
    let other = Arc::new(device.fork());
    with(&*other, &doubted);
    let mut restored = lost;
    if !doubted.is_empty() && faults(other) < faults(device.clone()) {
        with(&**device, &doubted);
        restored.extend(doubted);
    }
    for (group, _) in restored {
        let what = "restored from its copy".into();
        actions.push(Action { place: Place::Descriptor { group }, what });
    }
}

/// Lowers the number of reserved descriptor blocks if these blocks overlap the bitmaps or the inode
/// table of the only group, and the image has fewer faults afterwards.
fn guess_reserved(
    device: &Arc<OverlayDevice>,
    volume: Volume,
    actions: &mut Vec<Action>,
) -> Volume {
    let geometry = &volume.geometry;
    let groups = Groups::read(&volume, &silent());
    let Some(desc) = groups.get(Group(0)).filter(|_| geometry.group_count() == 1) else {
        return volume;
    };
    let lowest = desc.block_bitmap.min(desc.inode_bitmap).min(desc.inode_table);
    let first = geometry.super_block().0 + 1 + u64::from(geometry.desc_blocks());
    let room = lowest.0.checked_sub(first).and_then(|room| u16::try_from(room).ok());
    let Some(room) = room.filter(|room| u32::from(*room) < geometry.reserved_gdt_blocks()) else {
        return volume;
    };
    let mut raw = volume.raw().clone();
    raw.s_reserved_gdt_blocks.set(room);
    let Ok(superblock) = Superblock::from_raw(raw) else { return volume };
    let other = Arc::new(device.fork());
    put_superblock(&*other, &superblock);
    if faults(other) >= faults(device.clone()) {
        return volume;
    }
    put_superblock(&**device, &superblock);
    let what = format!("reserves {room} blocks for descriptors, which end before the bitmaps");
    actions.push(Action { place: Place::Superblock, what });
    Volume::new(device.clone(), superblock)
}

/// Guesses the descriptor of a small file system that has a single group, and so no copies of the
/// descriptor. The guesses assume that the bitmaps and the inode table follow one another, as
/// mke2fs places them. The repair uses the guess with which the image has the fewest faults.
fn guess_descriptor(device: &Arc<OverlayDevice>, volume: &Volume, actions: &mut Vec<Action>) {
    let (geometry, group) = (&volume.geometry, Group(0));
    let mut fewest = match geometry.group_count() {
        1 => faults(device.clone()),
        _ => return,
    };
    let desc = geometry.desc_block(0).and_then(|at| volume.read_block(at).ok());
    let desc = desc.and_then(|bytes| {
        GroupDesc::decode_unchecked(bytes.get(..geometry.desc_size())?, geometry).ok()
    });
    let Some(desc) = desc.filter(|_| fewest > 0) else { return };
    let first = geometry.super_block().0 + u64::from(geometry.group_overhead(group));
    let mut best = None;
    // With flex_bg, mke2fs leaves room for the bitmaps of all groups of a flex group, even if the
    // image has only one group.
    let apart = [1, u64::from(geometry.flex_size())];
    let starts = apart.into_iter().flat_map(|n| {
        let (bitmap, table) = (desc.inode_bitmap.0, desc.inode_table.0);
        let from = [desc.block_bitmap.0, bitmap.saturating_sub(n), table.saturating_sub(2 * n)];
        from.into_iter().chain([first]).map(move |start| (start, n))
    });
    for (start, apart) in starts {
        let [block_bitmap, inode_bitmap, inode_table] =
            [0, apart, 2 * apart].map(|n| Block(start.saturating_add(n)));
        let mut guess = GroupDesc { block_bitmap, inode_bitmap, inode_table, ..desc };
        guess.flags -= GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        guess.itable_unused = 0;
        if start == 0 || groups::check_places(volume, group, &guess).is_err() {
            continue;
        }
        let other = Arc::new(device.fork());
        put_descriptor(&*other, volume, group, &guess);
        let count = faults(other);
        if count < fewest {
            (fewest, best) = (count, Some(guess));
        }
    }
    if let Some(best) = best {
        put_descriptor(&**device, volume, group, &best);
        let what = "guessed: bitmaps and table follow one another".into();
        actions.push(Action { place: Place::Descriptor { group }, what });
    }
}

/// Returns the descriptor of `group` with the block numbers of a valid copy, if these differ from
/// the block numbers in the descriptor itself.
fn other_places(volume: &Volume, group: Group) -> Option<GroupDesc> {
    let geometry = &volume.geometry;
    let (index, range) = geometry.desc_place(group)?;
    let bytes = volume.read_block(geometry.desc_block(index)?).ok()?;
    let raw = bytes.get(range.clone())?;
    let mut desc = GroupDesc::decode_unchecked(raw, geometry).ok()?;
    let copy = copies(geometry, index).find_map(|block| {
        let bytes = volume.read_block(block).ok()?;
        let raw = bytes.get(range.clone())?;
        GroupDesc::verify(raw, group, geometry, volume.checksums).ok()?;
        let desc = GroupDesc::decode_unchecked(raw, geometry).ok()?;
        groups::check_places(volume, group, &desc).ok().map(|()| desc)
    })?;
    let places = |desc: &GroupDesc| (desc.block_bitmap, desc.inode_bitmap, desc.inode_table);
    if places(&desc) == places(&copy) {
        return None;
    }
    (desc.block_bitmap, desc.inode_bitmap, desc.inode_table) = places(&copy);
    if GroupDesc::verify(raw, group, geometry, volume.checksums).is_err() {
        desc.flags -= GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        desc.itable_unused = 0;
    }
    Some(desc)
}

/// Returns the blocks that hold the copies of descriptor block `index`.
fn copies(geometry: &Geometry, index: u32) -> impl Iterator<Item = Block> + '_ {
    let is_old = !geometry.is_meta_bg(index);
    let per_block = geometry.descs_per_block();
    let first = index.saturating_mul(per_block);
    let last = first.saturating_add(per_block - 1);
    let meta = [first.saturating_add(1), last].into_iter().map(Group);
    let groups: Vec<Group> = match is_old {
        // Groups of the `meta_bg` part have no copies of the old descriptors.
        true => geometry.backups().filter(|g| !geometry.is_meta_bg(g.0 / per_block)).collect(),
        false => meta.filter(|group| group.0 < geometry.group_count()).collect(),
    };
    groups.into_iter().filter_map(move |group| {
        let start = geometry.group_first_block(group)?.0;
        let after = u64::from(geometry.group_has_super(group));
        Some(Block(start + after + if is_old { u64::from(index) } else { 0 }))
    })
}

fn put_descriptor(device: &dyn Device, volume: &Volume, group: Group, desc: &GroupDesc) {
    let geometry = &volume.geometry;
    let Some((index, range)) = geometry.desc_place(group) else { return };
    let Some(block) = geometry.desc_block(index) else { return };
    let at = (block.0 << geometry.block_size().bits()) + range.start as u64;
    let mut bytes = vec![0; geometry.desc_size()];
    if device.read_at(at, &mut bytes).is_ok() {
        desc.encode_into(&mut bytes, group, geometry, volume.checksums);
        let _ = device.write_at(at, &bytes);
    }
}
