//! The pass that checks all inode tables, on all threads.

use crate::fault::Fault;
use crate::groups::used_inodes;
use crate::inodes;
use crate::parallel;
use crate::place::Place;
use crate::run::Run;
use lanefs_ondisk::{Block, Group};

/// The number of bytes of a table that are read together.
const CHUNK: usize = 256 << 10;

/// Checks every inode of every table, and claims their blocks.
pub fn check(run: &Run<'_>, threads: usize, done: &(dyn Fn(u64) + Sync)) {
    let groups = run.volume.geometry.group_count();
    parallel::each(threads, groups.into(), Vec::new, |buffer: &mut Vec<u8>, n| {
        if let Ok(group) = u32::try_from(n) {
            check_group(run, Group(group), buffer);
        }
        done(1);
    });
}

fn check_group(run: &Run<'_>, group: Group, buffer: &mut Vec<u8>) {
    let geometry = &run.volume.geometry;
    let Some(desc) = run.groups.get(group) else { return };
    let used = used_inodes(run.volume, desc);
    let per_block = geometry.inodes_per_block();
    let blocks = used.div_ceil(per_block);
    let together = (CHUNK / run.volume.block_bytes()).max(1) as u32;
    let mut directories = Vec::new();
    for first in (0..blocks).step_by(together as usize) {
        let count = together.min(blocks - first);
        buffer.resize(count as usize * run.volume.block_bytes(), 0);
        let at = Block(desc.inode_table.0 + u64::from(first));
        if run.volume.read(at, buffer).is_err() {
            run.add(Place::Blocks { start: at, len: count.into() }, Fault::Unreadable);
            continue;
        }
        let records = buffer.chunks_exact(geometry.inode_size());
        for (index, bytes) in (first * per_block..used).zip(records) {
            let Some(ino) = geometry.ino_at(group, index) else { continue };
            if inodes::check(run, ino, bytes) {
                directories.push(ino);
            }
        }
    }
    if run.first && !directories.is_empty() {
        run.directories.lock().append(&mut directories);
    }
}
