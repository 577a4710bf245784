//! Compares the usage in quota files with the space and number of the inodes of each user, group
//! and project.
//!
//! A quota file is a tree of four levels by the bytes of an id, with blocks of 1 KiB; its leaves
//! have records of 72 bytes. Source: kernel documentation, *Quota subsystem*, and
//! `quota(5)`-format 2, revision 1, as mke2fs writes it.

use crate::bytes::{le32, part};
use crate::fault::Fault;
use crate::mapping::Runs;
use crate::place::Place;
use crate::record::Record;
use crate::run::{Run, Usage, Usages};
use lanefs_ondisk::features::RoCompat;
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::collections::{HashMap, HashSet};

/// Bytes of a block of a quota file.
const BLOCK: usize = 1024;
/// Levels of the tree: one for each byte of an id.
const LEVELS: u32 = 4;
/// The block of the root.
const ROOT: u32 = 1;
const LEAF_HEADER: usize = 16;
const RECORD: usize = 72;
const INODES: usize = 24;
const SPACE: usize = 48;
const MAGICS: [u32; 3] = [0xd9c0_1f11, 0xd9c0_1927, 0xd9c0_3f14];

/// A quota file.
struct File<'a> {
    run: &'a Run<'a>,
    runs: Runs,
    blocks: u64,
    seen: HashSet<u32>,
    found: HashMap<u32, Usage>,
}

/// Adds an inode and its space to the usage of its owners.
pub fn add(run: &Run<'_>, ino: Ino, record: &Record) {
    let is_counted = ino == Ino::ROOT || ino >= run.volume.geometry.first_ino();
    if !run.first || !run.volume.ro_compat(RoCompat::QUOTA) || !is_counted {
        return;
    }
    let blocks = record.blocks(&run.volume.geometry);
    let huge = record.flags.contains(lanefs_ondisk::inode::InodeFlags::HUGE_FILE);
    let unit = if huge { run.volume.block_bytes() as u64 } else { 512 };
    let mut usages = run.usages.lock();
    for (kind, id) in [record.uid, record.gid, record.projid].into_iter().enumerate() {
        let usage = usages.entry((kind, id)).or_default();
        usage.inodes += 1;
        usage.bytes = usage.bytes.saturating_add(blocks.saturating_mul(unit));
    }
}

/// Compares the quota files with the usage.
pub fn check(run: &Run<'_>) {
    if !run.volume.ro_compat(RoCompat::QUOTA) {
        return;
    }
    let usages = std::mem::take(&mut *run.usages.lock());
    let raw = run.volume.raw();
    let project = run.volume.ro_compat(RoCompat::PROJECT).then(|| raw.s_prj_quota_inum.get());
    let inums = [Some(raw.s_usr_quota_inum.get()), Some(raw.s_grp_quota_inum.get()), project];
    for (kind, ino) in inums.into_iter().enumerate() {
        if let Some(ino) = ino.filter(|ino| *ino != 0) {
            check_file(run, Ino(ino), kind, &usages);
        }
    }
}

fn check_file(run: &Run<'_>, ino: Ino, kind: usize, usages: &Usages) {
    let place = Place::Inode { ino };
    let Some(found) = read(run, ino, kind) else {
        return run.add(place, Fault::QuotaFile);
    };
    for ((_, id), expected) in usages.iter().filter(|((of, _), _)| *of == kind) {
        if found.get(id) != Some(expected) {
            run.add(place, Fault::Quota { id: *id });
        }
    }
    for (id, usage) in found {
        if !usages.contains_key(&(kind, id)) && usage != Usage::default() {
            run.add(place, Fault::Quota { id });
        }
    }
}

fn read(run: &Run<'_>, ino: Ino, kind: usize) -> Option<HashMap<u32, Usage>> {
    let record = Record::decode(&run.read_inode(ino)?);
    let runs = Runs::of(run.volume, ino, &record);
    let blocks = record.size() / BLOCK as u64;
    let mut file = File { run, runs, blocks, seen: HashSet::new(), found: HashMap::new() };
    let head = file.block(0)?;
    let is_right = MAGICS.get(kind) == Some(&le32(&head, 0)) && le32(&head, 4) <= 1;
    is_right.then_some(())?;
    file.walk(ROOT, LEVELS)?;
    Some(file.found)
}

impl File<'_> {
    fn block(&self, n: u32) -> Option<Vec<u8>> {
        let at = u64::from(n) * BLOCK as u64;
        let size = self.run.volume.block_bytes() as u64;
        let block = self.runs.block(FileBlock(u32::try_from(at / size).ok()?))?;
        let whole = self.run.volume.read_block(Block(block.0)).ok()?;
        part(&whole, (at % size) as usize, BLOCK).map(<[u8]>::to_vec)
    }

    /// Visits a block that is `levels` above the leaves, unless it was visited before.
    fn walk(&mut self, n: u32, levels: u32) -> Option<()> {
        if u64::from(n) >= self.blocks {
            return None;
        }
        if !self.seen.insert(n) {
            return Some(());
        }
        let bytes = self.block(n)?;
        if levels == 0 {
            self.leaf(&bytes);
            return Some(());
        }
        for below in bytes.as_chunks().0 {
            match u32::from_le_bytes(*below) {
                0 => {}
                below => self.walk(below, levels - 1)?,
            }
        }
        Some(())
    }

    fn leaf(&mut self, bytes: &[u8]) {
        for record in bytes.get(LEAF_HEADER..).unwrap_or_default().chunks_exact(RECORD) {
            if record.iter().any(|byte| *byte != 0) {
                let wide = |at| u64::from(le32(record, at + 4)) << 32 | u64::from(le32(record, at));
                let usage = Usage { inodes: wide(INODES), bytes: wide(SPACE) };
                self.found.insert(le32(record, 0), usage);
            }
        }
    }
}
