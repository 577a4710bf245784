//! Checks orphans: inodes that the next mount deletes or truncates. They are recorded in a list or
//! in a file.

use crate::bytes::le32;
use crate::fault::Fault;
use crate::field::{Feature, Field};
use crate::groups::Groups;
use crate::mapping::Runs;
use crate::place::Place;
use crate::record::Record;
use crate::run::Run;
use crate::volume::Volume;
use lanefs_ondisk::features::{Incompat, RoCompat};
use lanefs_ondisk::orphan::{OrphanBlock, OrphanSeed};
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::collections::HashSet;

/// The offset of a block's checksum from its end, in bytes (kernel documentation, "Orphan file").
const CHECKSUM: usize = 4;
/// No orphan file is longer, in bytes.
const LONGEST_FILE: usize = 8 << 20;

/// Checks the orphan list and the orphan file. Orphans that a crash left behind are not damage. But
/// if no log has to be replayed, the image does not count as clean, because they occupy space until
/// a mount or e2fsck processes them.
pub fn check(run: &Run<'_>) {
    let (listed, wrong) = listed(run.volume, run.groups);
    if let Some(ino) = wrong {
        run.add(Place::OrphanList, Fault::Orphan { ino });
    }
    let recovers = run.volume.incompat(Incompat::RECOVER);
    if !listed.is_empty() {
        let orphans = listed.len() as u64;
        run.add(Place::OrphanList, Fault::OrphansPending { orphans, recovers });
    }
    if let Some(ino) = run.volume.superblock().orphan_file() {
        check_file(run, ino);
        return;
    }
    if run.volume.ro_compat(RoCompat::ORPHAN_PRESENT) {
        run.add(Place::Superblock, Fault::Feature { feature: Feature::OrphanFile });
    }
    let named = run.volume.raw().s_orphan_file_inum.get();
    let record = run.read_inode(Ino(named)).map(|bytes| Record::decode(&bytes));
    if record.is_some_and(|record| record.is_in_use()) {
        // Without the feature `orphan_file`, the inode that the superblock states as the orphan
        // file must not be in use, because e2fsck would clear it.
        run.add(Place::Superblock, Fault::Field { field: Field::OrphanFile, found: named.into() });
    }
}

/// Returns all orphans that can be found. Until they are deleted or truncated, they are in use.
pub fn all(volume: &Volume, groups: &Groups) -> HashSet<Ino> {
    let (mut orphans, _) = listed(volume, groups);
    if let Some(ino) = volume.superblock().orphan_file()
        && let Some(bytes) = groups.read_inode(volume, ino)
    {
        let record = Record::decode(&bytes);
        let seed = OrphanSeed::new(volume.checksums, ino, record.generation);
        let runs = Runs::of(volume, ino, &record);
        let blocks = runs.extents().iter().flat_map(|e| e.block.0..e.block.0 + u64::from(e.len));
        for at in blocks.take(LONGEST_FILE / volume.block_bytes()).map(Block) {
            let block = volume.read_block(at).ok();
            let block = block.and_then(|bytes| OrphanBlock::decode(&bytes, at, seed).ok());
            orphans.extend(block.iter().flat_map(|b| b.orphans()).map(|(_, ino)| ino));
        }
    }
    let is_file = |ino: &Ino| *ino >= volume.geometry.first_ino() && !volume.is_hidden(*ino);
    orphans.retain(|ino| is_file(ino) && volume.geometry.has_inode(*ino));
    orphans
}

/// Follows the orphan list. Returns its inodes, and the number in it that is not valid.
fn listed(volume: &Volume, groups: &Groups) -> (HashSet<Ino>, Option<u32>) {
    let mut orphans = HashSet::new();
    let mut next = volume.raw().s_last_orphan.get();
    while next != 0 {
        let ino = Ino(next);
        let bytes = groups.read_inode(volume, ino);
        let is_valid = ino >= volume.geometry.first_ino() && orphans.insert(ino);
        match bytes.filter(|_| is_valid) {
            Some(bytes) => next = Record::decode(&bytes).dtime,
            None => return (orphans, Some(next)),
        }
    }
    (orphans, None)
}

fn check_file(run: &Run<'_>, ino: Ino) {
    let Some(bytes) = run.read_inode(ino) else { return };
    let record = Record::decode(&bytes);
    let seed = OrphanSeed::new(run.volume.checksums, ino, record.generation);
    let runs = Runs::of(run.volume, ino, &record);
    let block_bytes = run.volume.block_bytes() as u64;
    let (blocks, rest) = (record.size() / block_bytes, record.size() % block_bytes);
    let recovers = run.volume.incompat(Incompat::RECOVER);
    let mut orphans = 0;
    let mut mapped = 0;
    for extent in runs.extents() {
        mapped += u64::from(extent.len);
        for n in 0..extent.len {
            let block = FileBlock(extent.start.0 + n);
            let at = Block(extent.block.0 + u64::from(n));
            let place = Place::OrphanFile { ino, block };
            let Ok(bytes) = run.volume.read_block(at) else {
                run.add(place, Fault::Unreadable);
                continue;
            };
            match OrphanBlock::decode(&bytes, at, seed) {
                Ok(block) => {
                    orphans += block.orphans().count() as u64;
                    // In a file system without checksums, the checksum field must be 0, because
                    // otherwise e2fsck assumes that the block contains orphans.
                    let found = le32(&bytes, bytes.len().saturating_sub(CHECKSUM)).into();
                    if run.volume.checksums.seed().is_none() && found != 0 {
                        run.add(place, Fault::NotZero { what: "the checksum", found });
                    }
                }
                Err(cause) => run.add(place, Fault::Orphans(cause)),
            }
        }
    }
    if mapped < blocks || blocks == 0 || rest != 0 {
        run.add(Place::Inode { ino }, Fault::Size { size: record.size(), last: None });
    }
    if orphans > 0 {
        let place = Place::OrphanFile { ino, block: FileBlock(0) };
        run.add(place, Fault::OrphansPending { orphans, recovers });
    } else if run.volume.ro_compat(RoCompat::ORPHAN_PRESENT) && !recovers {
        // A mount sets `orphan_present` and `needs_recovery`, and clears both when it ends. So
        // after a crash both are set, even without orphans. But if only `orphan_present` is set,
        // there must be orphans.
        run.add(Place::Superblock, Fault::NoOrphans);
    }
}
