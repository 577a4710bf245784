//! The block pointers of ext2 and ext3: twelve direct pointers, and three trees of pointers.
//!
//! Source: ext4 disk layout documentation, "Direct/Indirect Block Addressing".

use super::sink::Sink;
use crate::bytes::le32;
use crate::fault::Fault;
use crate::place::Place;
use crate::record::Record;
use crate::volume::Volume;
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::collections::HashSet;

/// The number of pointers in the inode that point to data blocks.
const DIRECT: usize = 12;
/// The number of pointers in the inode that point to trees. The trees have one, two and three
/// levels.
const TREES: usize = 3;

struct Walk<'a> {
    volume: &'a Volume,
    ino: Ino,
    sink: &'a mut dyn Sink,
    /// The last run of blocks, which the next pointer may continue.
    run: Option<Extent>,
    /// The pointer blocks that were visited. They are remembered because a hostile tree could refer
    /// to one block many times.
    seen: HashSet<Block>,
}

pub(super) fn walk(volume: &Volume, ino: Ino, record: &Record, sink: &mut dyn Sink) {
    let mut walk = Walk { volume, ino, sink, run: None, seen: HashSet::new() };
    for n in 0..DIRECT {
        walk.data(None, n as u64, record.pointer(n));
    }
    let per_block = volume.block_bytes() as u64 / 4;
    let (mut at, mut covered) = (DIRECT as u64, per_block);
    for tree in 0..TREES {
        walk.tree(None, at, covered, record.pointer(DIRECT + tree));
        at += covered;
        covered *= per_block;
    }
    walk.end_run();
}

impl Walk<'_> {
    /// Adds the data block to which a pointer refers; does nothing for a hole.
    fn data(&mut self, holder: Option<Block>, at: u64, pointer: u32) {
        let Some(block) = self.target(holder, pointer) else { return };
        let Ok(start) = u32::try_from(at).map(FileBlock) else {
            let place = Place::Pointers { ino: self.ino, block: holder };
            return self.sink.fault(place, Fault::TooFar { block: FileBlock(u32::MAX) });
        };
        let next = Extent { start, len: 1, block, state: State::Written };
        match &mut self.run {
            Some(run) if run.continued_by(&next) && run.len < State::Written.max_len() => {
                run.len += 1;
            }
            _ => {
                self.end_run();
                self.run = Some(next);
            }
        }
    }

    /// Follows a pointer to a block of pointers. That block maps `covered` blocks of the file from
    /// `at` on.
    fn tree(&mut self, holder: Option<Block>, at: u64, covered: u64, pointer: u32) {
        let Some(block) = self.target(holder, pointer) else { return };
        self.end_run();
        self.sink.meta(block);
        if !self.seen.insert(block) {
            return;
        }
        let Ok(bytes) = self.volume.read_block(block) else {
            let place = Place::Pointers { ino: self.ino, block: Some(block) };
            return self.sink.fault(place, Fault::Unreadable);
        };
        let per_block = bytes.len() as u64 / 4;
        let each = covered / per_block;
        for n in 0..per_block {
            let pointer = le32(&bytes, n as usize * 4);
            match each {
                1 => self.data(Some(block), at + n, pointer),
                _ => self.tree(Some(block), at + n * each, each, pointer),
            }
        }
    }

    /// Returns the block to which a pointer refers; `None` for a hole, or for a block that no file
    /// can use.
    fn target(&mut self, holder: Option<Block>, pointer: u32) -> Option<Block> {
        let block = Block(pointer.into());
        if pointer == 0 {
            return None;
        }
        if !self.volume.is_for_files(block) {
            let place = Place::Pointers { ino: self.ino, block: holder };
            self.sink.fault(place, Fault::WildBlock { block });
            return None;
        }
        Some(block)
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.sink.data(run);
        }
    }
}
