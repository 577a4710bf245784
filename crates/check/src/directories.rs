//! The pass that checks directories, on all threads.

mod directory;
mod dots;
mod entries;
mod index;
mod inline;

use crate::encryption::Policy;
use crate::fault::Fault;
use crate::mapping::Runs;
use crate::parallel;
use crate::parents::Parents;
use crate::place::Place;
use crate::record::Record;
use crate::run::Run;
use directory::Directory;
use index::Tree;
use lanefs_lanes::sync::atomic::Ordering;
use lanefs_ondisk::dirent::{self, Cause};
use lanefs_ondisk::features::Compat;
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::{Block, FileBlock, Ino, htree};

/// The number of directory blocks that are read together.
const TOGETHER: u32 = 32;

/// Checks every directory in `parents`, and counts the names of each inode.
pub fn check(run: &Run<'_>, parents: &Parents, threads: usize, done: &(dyn Fn(u64) + Sync)) {
    let count = parents.inos().len() as u64;
    parallel::each(threads, count, Vec::new, |buffer: &mut Vec<u8>, n| {
        if let Some(ino) = parents.inos().get(n as usize) {
            check_one(run, parents, *ino, buffer);
        }
        done(1);
    });
}

fn check_one(run: &Run<'_>, parents: &Parents, ino: Ino, buffer: &mut Vec<u8>) {
    let Some(bytes) = run.read_inode(ino) else { return };
    let record = Record::decode(&bytes);
    let seed = run.volume.checksums.seed().map(|seed| seed.of_inode(ino, record.generation));
    let format = run.volume.superblock().dir_format(record.flags);
    let policy = Policy::of(run, &record, &bytes);
    let mut directory = Directory { run, parents, format, ino, record, seed, policy, entries: 0 };
    if directory.record.flags.contains(InodeFlags::INLINE_DATA) {
        inline::check(&mut directory, &bytes);
    } else {
        directory.check_blocks(buffer);
    }
    run.entries.fetch_add(directory.entries, Ordering::Relaxed);
}

pub use inline::names as inline_names;

impl Directory<'_> {
    fn check_blocks(&mut self, buffer: &mut Vec<u8>) {
        let runs = Runs::of(self.run.volume, self.ino, &self.record);
        let size = self.record.size() >> self.format.block_size.bits();
        let is_indexed = self.record.flags.contains(InodeFlags::INDEX)
            && self.run.volume.compat(Compat::DIR_INDEX);
        let blocks = u32::try_from(size).unwrap_or(u32::MAX);
        let tree = is_indexed.then(|| Tree::read(self, &runs, blocks));
        let mut next = 0;
        for extent in runs.extents() {
            let (from, to) = (extent.start.0.min(blocks), extent.end().min(blocks));
            if from > next {
                self.hole(next);
            }
            next = next.max(to);
            for first in (from..to).step_by(TOGETHER as usize) {
                let count = TOGETHER.min(to - first);
                let at = Block(extent.block.0 + u64::from(first - extent.start.0));
                self.check_run(FileBlock(first), at, count, tree.as_ref(), buffer);
            }
        }
        if next < blocks {
            self.hole(next);
        }
        if blocks == 0 {
            let place = Place::Directory { ino: self.ino, block: FileBlock(0) };
            self.run.add(place, Fault::Dirent(Cause::NoDots));
        }
    }

    fn hole(&self, block: u32) {
        let place = Place::Directory { ino: self.ino, block: FileBlock(block) };
        self.run.add(place, Fault::Dirent(Cause::Hole));
    }

    fn check_run(
        &mut self,
        first: FileBlock,
        at: Block,
        count: u32,
        tree: Option<&Tree>,
        buffer: &mut Vec<u8>,
    ) {
        if !self.run.may_read(count) {
            return;
        }
        let size = self.format.block_size.bytes();
        buffer.resize(count as usize * size, 0);
        if self.run.volume.read(at, buffer).is_err() {
            let place = Place::Directory { ino: self.ino, block: first };
            return self.run.add(place, Fault::Unreadable);
        }
        for (n, bytes) in (first.0..).zip(buffer.chunks_exact(size)) {
            self.check_block(FileBlock(n), bytes, tree);
        }
    }

    fn check_block(&mut self, block: FileBlock, bytes: &[u8], tree: Option<&Tree>) {
        let place = Place::Directory { ino: self.ino, block };
        let kind = tree.and_then(|tree| tree.index_kind(block));
        if let Some(kind) = kind {
            if block.0 == 0 {
                dots::check_root(self, bytes);
            }
            if let Some(seed) = self.seed
                && let Err(cause) = htree::verify(&self.format, kind, seed, bytes)
            {
                self.run.add(place, Fault::Index(cause));
            }
            return;
        }
        if let Some(seed) = self.seed
            && let Err(cause) = dirent::verify(&self.format, seed, bytes)
        {
            self.run.add(place, Fault::Dirent(cause));
        }
        let leaf = tree.map(|tree| tree.leaf(self, block));
        entries::check(self, block, bytes, leaf.flatten());
    }
}
