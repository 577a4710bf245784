//! Checks the resize inode, the mmp block, and the feature `large_file`.

use crate::bytes::le32;
use crate::fault::Fault;
use crate::field::{Feature, Field};
use crate::place::Place;
use crate::record::Record;
use crate::run::Run;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::mmp::{LAST_SEQUENCE, Mmp, Use};
use lanefs_ondisk::{Block, Group, Ino};

/// The index of the double indirect pointer, which is the only pointer that the resize inode uses.
pub const DOUBLE: usize = 13;
/// The number of pointers in an inode.
pub const POINTERS: usize = 15;

/// Checks the resize inode, the mmp block, and whether the feature `large_file` is set if a file
/// needs it.
pub fn check(run: &Run<'_>) {
    if let Err(what) = check_resize(run) {
        run.add(Place::Inode { ino: Ino::RESIZE }, Fault::Special { ino: Ino::RESIZE.0, what });
    }
    if run.volume.incompat(Incompat::MMP) {
        let found = run.volume.raw().s_mmp_block.get();
        match mmp_state(run) {
            None => run.add(Place::Superblock, Fault::Field { field: Field::Mmp, found }),
            Some(Use::Checked) => run.add(Place::Superblock, Fault::BeingChecked),
            Some(_) => {}
        }
    }
    let has_large = run.has_large_file.load(Ordering::Relaxed);
    if has_large && !run.volume.ro_compat(RoCompat::LARGE_FILE) {
        run.add(Place::Superblock, Fault::Feature { feature: Feature::LargeFile });
    }
}

/// Checks that the resize inode maps every block that is reserved for descriptors, and also the
/// copy of each such block in every group that has a copy of the superblock.
fn check_resize(run: &Run<'_>) -> Result<(), &'static str> {
    let geometry = &run.volume.geometry;
    let bytes = run.read_inode(Ino::RESIZE).ok_or("cannot be read")?;
    let record = Record::decode(&bytes);
    let others = (0..POINTERS).filter(|n| *n != DOUBLE).any(|n| record.pointer(n) != 0);
    if !run.volume.compat(Compat::RESIZE_INODE) {
        let is_clear = !others && record.pointer(DOUBLE) == 0;
        return is_clear.then_some(()).ok_or("has blocks without the feature resize_inode");
    }
    let reserved = geometry.reserved_gdt_blocks();
    let regular = record.file_type() == Some(lanefs_ondisk::FileType::Regular);
    let root = Block(record.pointer(DOUBLE).into());
    if !regular || record.links == 0 || others || record.flags.contains(InodeFlags::EXTENTS) {
        return Err("not the inode of reserved descriptors");
    }
    if !run.volume.is_for_files(root) {
        return Err("has no block of pointers");
    }
    let top = run.volume.read_block(root).map_err(|_| "cannot be read")?;
    let words = geometry.block_size().bytes() as u64 / 4;
    let first = geometry.super_block().0 + 1 + u64::from(geometry.desc_blocks());
    let backups: Vec<Group> = geometry.backups().take(words as usize).collect();
    for n in 0..u64::from(reserved) {
        let block = first + n;
        let index = (u64::from(geometry.desc_blocks()) + n) % words;
        if u64::from(le32(&top, index as usize * 4)) != block {
            return Err("does not have a reserved block");
        }
        check_copies(run, block, &backups)?;
    }
    Ok(())
}

fn check_copies(run: &Run<'_>, block: u64, backups: &[Group]) -> Result<(), &'static str> {
    let geometry = &run.volume.geometry;
    let copies = run.volume.read_block(Block(block)).map_err(|_| "cannot be read")?;
    for (n, group) in backups.iter().enumerate() {
        let expected = block + u64::from(group.0) * u64::from(geometry.blocks_per_group());
        if u64::from(le32(&copies, n * 4)) != expected {
            return Err("does not have a copy of a reserved block");
        }
    }
    Ok(())
}

/// Returns the state in the mmp block; `None` if the block is not valid. Its sequence number must
/// be at most [`LAST_SEQUENCE`] or one of the two numbers that stand for a state (not mounted, or
/// being checked).
fn mmp_state(run: &Run<'_>) -> Option<Use> {
    let block = Block(run.volume.raw().s_mmp_block.get());
    let bytes = run.volume.is_for_files(block).then(|| run.volume.read_block(block).ok())??;
    let mmp = Mmp::decode(&bytes, run.volume.checksums).ok()?;
    let is_valid = !matches!(mmp.state, Use::Mounted(number) if number > LAST_SEQUENCE);
    is_valid.then_some(mmp.state)
}
