//! Compares the block bitmaps with the claims (the clusters that the check found in use), and the
//! inode bitmaps with the inodes in use. Checks the counts of free blocks, free inodes and
//! directories in the group descriptors.

use crate::fault::{Fault, Unit};
use crate::groups::{NOWHERE, used_inodes};
use crate::parallel;
use crate::place::Place;
use crate::run::Run;
use lanefs_lanes::sync::atomic::{AtomicU64, Ordering};
use lanefs_ondisk::bitmap::Bitmap;
use lanefs_ondisk::group_desc::{GroupDesc, GroupFlags};
use lanefs_ondisk::{Block, FileType, Group};
use std::ops::Range;

/// The largest number of runs of differing bits that are reported for one bitmap.
const MOST_RUNS: usize = 8;

/// Sums of what the check itself counted in all groups.
#[derive(Debug, Default)]
pub struct Sums {
    free_clusters: AtomicU64,
    free_inodes: AtomicU64,
    used_inodes: AtomicU64,
    directories: AtomicU64,
    clusters: AtomicU64,
}

impl Sums {
    pub fn free_clusters(&self) -> u64 {
        self.free_clusters.load(Ordering::Relaxed)
    }

    pub fn free_inodes(&self) -> u64 {
        self.free_inodes.load(Ordering::Relaxed)
    }

    pub fn used_inodes(&self) -> u64 {
        self.used_inodes.load(Ordering::Relaxed)
    }

    pub fn directories(&self) -> u64 {
        self.directories.load(Ordering::Relaxed)
    }

    pub fn clusters(&self) -> u64 {
        self.clusters.load(Ordering::Relaxed)
    }
}

/// Compares the block bitmaps of `groups` with the claims.
pub fn check_blocks(run: &Run<'_>, threads: usize, groups: Range<u32>, sums: &Sums) {
    parallel::each(threads, u64::from(groups.end - groups.start), Vec::new, |buffer, n| {
        let group = Group(groups.start + n as u32);
        if let Some(desc) = run.groups.get(group) {
            check_block_bitmap(run, group, desc, buffer, sums);
        }
    });
}

/// Compares the inode bitmaps with the inodes in use.
pub fn check_inodes(run: &Run<'_>, threads: usize, sums: &Sums) {
    let groups = run.volume.geometry.group_count();
    parallel::each(threads, groups.into(), Vec::new, |buffer, n| {
        let group = Group(n as u32);
        if let Some(desc) = run.groups.get(group) {
            check_inode_bitmap(run, group, desc, buffer, sums);
        }
    });
}

fn has_flag(run: &Run<'_>, desc: &GroupDesc, flag: GroupFlags) -> bool {
    run.volume.geometry.features().has_descriptor_checksums() && desc.flags.contains(flag)
}

fn check_block_bitmap(
    run: &Run<'_>,
    group: Group,
    desc: &GroupDesc,
    buffer: &mut Vec<u8>,
    sums: &Sums,
) {
    let place = Place::BlockBitmap { group };
    let geometry = &run.volume.geometry;
    let Some(bits) = geometry.clusters_in_group(group) else { return };
    let start = u64::from(group.0) * u64::from(geometry.clusters_per_group());
    let claimed = |bit: u32| run.claims.word_at(start + u64::from(bit));
    if has_flag(run, desc, GroupFlags::BLOCK_UNINIT) {
        // In a group with BLOCK_UNINIT, only blocks of the file system's own metadata are in use.
        fill_uninitialised(run, group, buffer);
    } else {
        if !read(run, desc.block_bitmap, buffer, place) {
            return;
        }
        let sum = Bitmap::verify_blocks(buffer, desc, geometry, run.volume.checksums);
        run.report.check(place, sum.map_err(Fault::Bitmap));
        check_padding(run, place, buffer, bits, Unit::Block);
    }
    let base = (start << geometry.cluster_bits()) + geometry.first_data_block().0;
    let number = |bit: u32| base + (u64::from(bit) << geometry.cluster_bits());
    compare(run, place, buffer, bits, Unit::Block, claimed, number);
    let used = count(bits, claimed);
    let free = bits - used;
    if desc.free_blocks != free {
        let (found, expected) = (desc.free_blocks.into(), free.into());
        let what = "the number of free blocks";
        run.report.add(Place::Descriptor { group }, Fault::Count { what, found, expected });
    }
    sums.free_clusters.fetch_add(free.into(), Ordering::Relaxed);
    sums.clusters.fetch_add(used.into(), Ordering::Relaxed);
}

/// Fills `buffer` with the content of a block bitmap that was never written: only the bits of the
/// file system's own blocks are set.
fn fill_uninitialised(run: &Run<'_>, group: Group, buffer: &mut Vec<u8>) {
    let start = u64::from(group.0) * u64::from(run.volume.geometry.clusters_per_group());
    buffer.clear();
    buffer.resize(run.volume.block_bytes(), 0);
    for (n, bytes) in buffer.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *bytes = run.own.word_at(start + n as u64 * 64).to_le_bytes();
    }
}

fn check_inode_bitmap(
    run: &Run<'_>,
    group: Group,
    desc: &GroupDesc,
    buffer: &mut Vec<u8>,
    sums: &Sums,
) {
    let place = Place::InodeBitmap { group };
    let geometry = &run.volume.geometry;
    let bits = geometry.inodes_per_group();
    let used = used_inodes_of(run, group, bits);
    if has_flag(run, desc, GroupFlags::INODE_UNINIT) {
        buffer.clear();
        buffer.resize(run.volume.block_bytes(), 0);
    } else {
        if !read(run, desc.inode_bitmap, buffer, place) {
            return;
        }
        let sum = Bitmap::verify_inodes(buffer, desc, geometry, run.volume.checksums);
        run.report.check(place, sum.map_err(Fault::Bitmap));
        check_padding(run, place, buffer, bits, Unit::Inode);
    }
    let word = |bit: u32| used.words.get((bit / 64) as usize).copied().unwrap_or_default();
    let number = |bit: u32| u64::from(geometry.ino_at(group, bit).unwrap_or_default().0);
    compare(run, place, buffer, bits, Unit::Inode, word, number);
    let free = u64::from(bits - used.inodes);
    let place = Place::Descriptor { group };
    let count = |what, found: u32, expected: u64| {
        if u64::from(found) != expected {
            run.report.add(place, Fault::Count { what, found: found.into(), expected });
        }
    };
    count("the number of free inodes", desc.free_inodes, free);
    count("the number of directories", desc.used_dirs, used.directories.into());
    sums.free_inodes.fetch_add(free, Ordering::Relaxed);
    sums.used_inodes.fetch_add(used.inodes.into(), Ordering::Relaxed);
    sums.directories.fetch_add(used.directories.into(), Ordering::Relaxed);
}

/// The used inodes of one group.
pub struct Used {
    pub words: Vec<u64>,
    pub inodes: u32,
    pub directories: u32,
}

/// Returns which inodes of a group are in use.
pub fn used_inodes_of(run: &Run<'_>, group: Group, bits: u32) -> Used {
    let geometry = &run.volume.geometry;
    let mut used = Used { words: vec![0; bits.div_ceil(64) as usize], inodes: 0, directories: 0 };
    let Some(desc) = run.groups.get(group) else { return used };
    let scanned = used_inodes(run.volume, desc);
    let reserved = geometry.first_ino().0;
    for bit in 0..bits {
        let Some(ino) = geometry.ino_at(group, bit) else { continue };
        if bit >= scanned && ino.0 >= reserved {
            break;
        }
        let state = run.states.get(ino);
        if !state.is_used() && ino.0 >= reserved {
            continue;
        }
        if let Some(word) = used.words.get_mut((bit / 64) as usize) {
            *word |= 1 << (bit % 64);
        }
        used.inodes += 1;
        used.directories += u32::from(state.file_type() == Some(FileType::Directory));
    }
    used
}

/// Reads a bitmap. A bitmap without a valid block number is not read; the check of its descriptor
/// has already reported it.
fn read(run: &Run<'_>, block: Block, buffer: &mut Vec<u8>, place: Place) -> bool {
    if block == NOWHERE {
        return false;
    }
    buffer.resize(run.volume.block_bytes(), 0);
    let result = run.volume.read(block, buffer);
    if result.is_err() {
        run.report.add(place, Fault::Unreadable);
    }
    result.is_ok()
}

/// Checks that all bits after the last block or inode of the group are set.
fn check_padding(run: &Run<'_>, place: Place, bytes: &[u8], bits: u32, by: Unit) {
    let end = run.volume.block_bytes() as u32 * 8;
    let is_set =
        |bit: u32| bytes.get((bit / 8) as usize).is_none_or(|byte| byte & (1 << (bit % 8)) != 0);
    if !(bits..end).all(is_set) {
        run.report.add(place, Fault::Padding { by });
    }
}

/// Reports the first [`MOST_RUNS`] runs of bits in which a bitmap differs from the bits of `used`.
fn compare(
    run: &Run<'_>,
    place: Place,
    bytes: &[u8],
    bits: u32,
    by: Unit,
    used: impl Fn(u32) -> u64,
    number: impl Fn(u32) -> u64,
) {
    let mut told = 0;
    let mut open: Option<(u32, bool)> = None;
    let mut end = |open: &mut Option<(u32, bool)>, at: u32| {
        let Some((from, is_used)) = open.take() else { return };
        told += 1;
        if told > MOST_RUNS {
            return;
        }
        let (start, len) = (number(from), u64::from(at - from));
        run.report.add(
            place,
            match is_used {
                true => Fault::UsedButFree { start, len, by },
                false => Fault::FreeButUsed { start, len, by },
            },
        );
    };
    for first in (0..bits).step_by(64) {
        let chunk = bytes.get((first / 8) as usize..).unwrap_or_default();
        let stored = chunk.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let width = (bits - first).min(64);
        let found = used(first);
        let differ = (stored ^ found) & (u64::MAX >> (64 - width));
        if differ == 0 {
            end(&mut open, first);
            continue;
        }
        for n in 0..width {
            let is_used = found >> n & 1 == 1;
            let state = (differ >> n & 1 == 1).then_some(is_used);
            if open.map(|(_, used)| used) != state {
                end(&mut open, first + n);
                open = state.map(|used| (first + n, used));
            }
        }
    }
    end(&mut open, bits);
}

fn count(bits: u32, word: impl Fn(u32) -> u64) -> u32 {
    let ones = |first: u32| {
        let width = (bits - first).min(64);
        (word(first) & (u64::MAX >> (64 - width))).count_ones()
    };
    (0..bits).step_by(64).map(ones).sum()
}
