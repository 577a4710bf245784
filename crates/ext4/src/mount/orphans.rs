//! Finishes the orphans of the last mount: deletes them or finishes their truncation.

use crate::data::file_data::FileData;
use crate::object::inode::InodeRef;
use crate::object::objects::Objects;
use crate::object::record::OrphanSlot;
use crate::volume::kind::MetaKind;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_lanes::{Nameless, set_nameless};
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::inode::Cause;
use lanefs_ondisk::superblock::OrphanEntries;
use lanefs_ondisk::{Block, Corruption, FileBlock, FileType, Ino, orphan as disk};
use lanefs_plan::Error;
use lanefs_plan::extent;
use std::collections::HashSet;

/// At mount: opens the orphan file, then deletes the nameless inodes and finishes the truncations
/// that the last mount left. The orphan file and the legacy list name these inodes.
pub(super) fn finish_orphans(
    objects: &Objects,
    file: Option<Ino>,
    head: Option<Ino>,
) -> Result<(), Error> {
    objects.finishing_orphans.store(true, Ordering::Release);
    let result = finish_found(objects, file, head);
    objects.finishing_orphans.store(false, Ordering::Release);
    result
}

fn finish_found(objects: &Objects, file: Option<Ino>, head: Option<Ino>) -> Result<(), Error> {
    let mut found = Vec::new();
    if let Some(ino) = file {
        found.extend(open_orphan_file(objects, ino)?);
    }
    // From here on the inodes are held in memory. If an inode without links were evicted, the next
    // look-up would take it for deleted.
    let list = read_list(objects, head)?;
    found.extend(objects.orphans.adopt_list(list.iter().map(|inode| inode.ino)));
    let mut held = Vec::new();
    for (ino, place) in found {
        let inode = orphan(objects, ino)?;
        let mut state = inode.state.lock();
        let twice = state.orphan.replace(place).is_some();
        state.disk.dtime = 0;
        let is_unlinked = state.disk.links == 0;
        drop(state);
        if twice {
            return Err(Corruption::Inode { ino, cause: Cause::OrphanLoop }.into());
        }
        if let Some(quotas) = objects.mount.quotas().filter(|_| is_unlinked) {
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
        let block_size = objects.volume.block_size() as u64;
        let keep = inode.attr().size.div_ceil(block_size);
        let data = FileData { objects, inode: &inode };
        // The blocks after the end of a verity file are its hash tree, so they stay.
        if inode.file_type == FileType::Regular && !data.is_verity() {
            let keep = u32::try_from(keep).unwrap_or(u32::MAX);
            data.free_from(keep)?;
        }
        let mut handle = objects.join(6)?;
        objects.orphans.finish(&mut handle, &inode);
    }
    Ok(())
}

/// Loads an inode that is an orphan according to the disk.
fn orphan(objects: &Objects, ino: Ino) -> Result<InodeRef, Error> {
    if !objects.volume.is_for_names(ino) {
        return Err(Corruption::Inode { ino, cause: Cause::NoSuchInode }.into());
    }
    // `get_any` is used because an inode that holds the value of an attribute can be an orphan: the
    // kernel leaves such orphans.
    objects.get_any(ino, None).map_err(|error| match error {
        Error::Stale => Corruption::Inode { ino, cause: Cause::NoOrphan }.into(),
        error => error,
    })
}

/// Pins the blocks of the orphan file, and returns the entries found in it.
fn open_orphan_file(objects: &Objects, ino: Ino) -> Result<Vec<(Ino, OrphanSlot)>, Error> {
    let file = objects.get_any(ino, None)?;
    let blocks = file.attr().size >> objects.volume.geometry().block_size().bits();
    let end = u32::try_from(blocks).unwrap_or(u32::MAX);
    let mut found = Vec::new();
    let mut pinned = Vec::new();
    // Uses only the mapped blocks, because the size may be wrong.
    let extents =
        FileData { objects, inode: &file }.with_map(|map| extent::overlapping(map, 0..end))?;
    let mapped = extents
        .iter()
        .flat_map(|e| (0..e.len).map(|at| (e.start.0 + at, Block(e.block.0 + u64::from(at)))));
    for (n, block) in mapped {
        let kind = MetaKind::Orphans { ino, generation: file.generation, block: FileBlock(n) };
        let block = objects.meta.get(objects, block, kind)?;
        let seed = disk::OrphanSeed::new(objects.volume.checksums, ino, file.generation);
        let entries = disk::OrphanBlock::decode(&block.data(), block.block, seed)
            .map_err(|cause| Corruption::OrphanFile { ino, block: FileBlock(n), cause })?;
        for (slot, orphan) in entries.orphans() {
            found.push((orphan, OrphanSlot::File { block: pinned.len(), slot }));
        }
        pinned.push(block);
    }
    objects.orphans.set_file(pinned, found.len());
    Ok(found)
}

/// Reads the legacy list, which is newest first on disk, and returns it oldest first.
fn read_list(objects: &Objects, head: Option<Ino>) -> Result<Vec<InodeRef>, Error> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut next = head;
    while let Some(ino) = next {
        if !seen.insert(ino) {
            return Err(Corruption::Inode { ino, cause: Cause::OrphanLoop }.into());
        }
        let inode = orphan(objects, ino)?;
        let dtime = inode.state.lock().disk.dtime;
        found.push(inode);
        next = (dtime != 0).then_some(Ino(dtime));
    }
    found.reverse();
    Ok(found)
}

/// Returns whether the orphan file still has entries: either nameless inodes that were still open
/// at the unmount, or entries that the mount did not read.
pub(super) fn orphans_left(objects: &Objects) -> OrphanEntries {
    let unread = !objects.orphans.has_file()
        && objects.superblock.snapshot().features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
    match unread || objects.orphans.are_in_file() {
        true => OrphanEntries::Present,
        false => OrphanEntries::Absent,
    }
}
