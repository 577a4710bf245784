//! For each user, group and project, compares the usage in the quota file with the number of inodes
//! and the space that these inodes take.
//!
//! Source of the format: `lanefs_ondisk::quota`. The rules that decide which inodes count were
//! found by observing e2fsck.

use crate::fault::Fault;
use crate::field::Field;
use crate::mapping::Runs;
use crate::place::Place;
use crate::record::Record;
use crate::run::Run;
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::quota::{Kind, QuotaFile, Usage};
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::collections::{BTreeMap, HashMap};

/// The size in bytes of the largest quota file that is read into memory. A file of this size has
/// 900,000 ids, and is larger than any file that a mount accepts.
pub const LARGEST: u64 = 64 << 20;

/// The content of a quota file.
pub struct Content {
    /// The bytes of the file, with zeros in place of holes and of blocks that cannot be read.
    pub bytes: Vec<u8>,
    /// The first hole or block that cannot be read: its offset in bytes, and the fault.
    pub fault: Option<(usize, Fault)>,
}

/// Adds an inode and its space to the usage of its owners. `values` is the number of the inode's
/// attribute values that are stored in separate inodes. Each of these values counts as one more
/// inode for the owners, even if other inodes share the value. The inode that stores the value does
/// not count separately.
pub fn add(run: &Run<'_>, ino: Ino, record: &Record, values: u64) {
    let is_counted = (ino == Ino::ROOT || ino >= run.volume.geometry.first_ino())
        && !record.flags.contains(InodeFlags::EA_INODE);
    if !run.first || !run.volume.ro_compat(RoCompat::QUOTA) || !is_counted {
        return;
    }
    let blocks = record.blocks(&run.volume.geometry);
    let huge = record.flags.contains(InodeFlags::HUGE_FILE);
    let unit = if huge { run.volume.block_bytes() as u64 } else { 512 };
    let mut usages = run.usages.lock();
    for (kind, id) in Kind::ALL.into_iter().zip([record.uid, record.gid, record.projid]) {
        let usage = usages.entry((kind, id)).or_default();
        usage.inodes += 1 + values;
        usage.bytes = usage.bytes.saturating_add(blocks.saturating_mul(unit));
    }
}

/// Compares the usage in the quota files with the usage that [`add`] counted.
pub fn check(run: &Run<'_>) {
    for (kind, ino) in files(run) {
        if let Err(fault) = check_file(run, kind, ino) {
            run.add(Place::Inode { ino }, fault);
        }
    }
}

/// Returns the quota files, with their inodes.
pub fn files(run: &Run<'_>) -> impl Iterator<Item = (Kind, Ino)> {
    let files = Kind::ALL.into_iter().zip(run.volume.superblock().quota_files());
    files.filter_map(|(kind, ino)| Some((kind, ino?)))
}

fn check_file(run: &Run<'_>, kind: Kind, ino: Ino) -> Result<(), Fault> {
    if !run.states.get(ino).is_scanned() {
        // The inode is in the part of a table that was never initialised.
        let fault = Fault::Field { field: Field::Quotas(kind), found: ino.0.into() };
        run.add(Place::Superblock, fault);
        return Ok(());
    }
    let record = Record::decode(&run.read_inode(ino).ok_or(Fault::Unreadable)?);
    if record.links == 0 && record.mode != 0 {
        // No mount opens an inode without links.
        run.add(Place::Inode { ino }, Fault::Links { found: 0, expected: 1 });
    }
    let Content { bytes, fault } = content(run, ino, &record);
    if record.size() > LARGEST && fault.is_none() {
        run.report.unchecked(format!("the {} quota file: {} bytes", kind.name(), record.size()));
        return Ok(());
    }
    let file = QuotaFile::decode(bytes, kind).map_err(Fault::QuotaFile)?;
    if let Some((_, fault)) = fault {
        return Err(fault);
    }
    let counted = usages(run, kind);
    for (id, usage) in &counted {
        if file.get(*id).map(|quota| quota.usage) != Some(*usage) {
            run.add(Place::Inode { ino }, Fault::Quota { id: *id });
        }
    }
    for id in file.ids().into_iter().filter(|id| !counted.contains_key(id)) {
        if file.get(id).is_some_and(|quota| quota.usage != Usage::default()) {
            run.add(Place::Inode { ino }, Fault::Quota { id });
        }
    }
    Ok(())
}

/// Returns the usage of each user, group or project (`kind`) that owns inodes.
pub fn usages(run: &Run<'_>, kind: Kind) -> BTreeMap<u32, Usage> {
    let usages: &HashMap<_, _> = &run.usages.lock();
    let own = usages.iter().filter(|((of, _), _)| *of == kind);
    own.map(|((_, id), usage)| (*id, *usage)).collect()
}

/// Reads a quota file up to its last mapped block, but no more than [`LARGEST`] bytes.
pub fn content(run: &Run<'_>, ino: Ino, record: &Record) -> Content {
    let runs = Runs::of(run.volume, ino, record);
    let (mut bytes, mut fault) = (Vec::new(), None);
    let block_bytes = run.volume.block_bytes();
    let wanted = record.size().min(LARGEST).div_ceil(block_bytes as u64) as u32;
    let end = runs.extents().last().map_or(0, Extent::end).min(wanted);
    for at in (0..end).map(FileBlock) {
        let mut block = vec![0; block_bytes];
        let read = match runs.extent(at).filter(|extent| extent.state == State::Written) {
            None => Err(Fault::QuotaHole { block: at }),
            Some(extent) => {
                let place = Block(extent.block.0 + u64::from(at.0 - extent.start.0));
                run.volume.read(place, &mut block).map_err(|_| Fault::Unreadable)
            }
        };
        fault = fault.or(read.err().map(|fault| (bytes.len(), fault)));
        bytes.extend_from_slice(&block);
    }
    if end < wanted {
        fault = fault.or(Some((bytes.len(), Fault::QuotaHole { block: FileBlock(end) })));
    }
    bytes.truncate(record.size().min(LARGEST) as usize);
    Content { bytes, fault }
}
