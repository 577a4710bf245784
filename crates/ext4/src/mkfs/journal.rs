//! Chooses the size and the position of the journal.

use super::runs::Runs;
use super::{JournalSize, MkfsOptions};
use lanefs_ondisk::features::{Compat, Features};
use lanefs_ondisk::superblock::Geometry;
use lanefs_ondisk::{BlockSize, Group};

/// `JBD2_MIN_JOURNAL_BLOCKS`.
pub(super) const LEAST_BLOCKS: u32 = 1024;

/// The length of the journal; both numbers are 0 if there is no journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalLength {
    /// The number of all blocks of the journal.
    pub blocks: u32,
    /// The number of blocks for fast commits, at the journal's end. The journal's superblock
    /// records this number.
    pub fast_commit_blocks: u32,
}

impl JournalLength {
    /// Returns the journal's length in a file system of `blocks` blocks with these features. If the
    /// options do not specify the length of the log, which excludes the blocks for fast commits,
    /// the log has `by_size` blocks.
    pub(super) fn choose(
        options: &MkfsOptions,
        features: Features,
        block_size: BlockSize,
        blocks: u64,
        by_size: u32,
    ) -> JournalLength {
        let log = match options.journal.in_blocks(block_size) {
            _ if !features.compat.contains(Compat::HAS_JOURNAL) => 0,
            JournalSize::None | JournalSize::Bytes(_) => 0,
            JournalSize::BySize => by_size,
            JournalSize::Blocks(blocks) => blocks,
        };
        if log == 0 {
            return JournalLength::default();
        }
        let fast = match options.fast_commit_bytes {
            _ if !features.compat.contains(Compat::FAST_COMMIT) => 0,
            None | Some(0) => fast_commit_blocks(blocks),
            Some(bytes) => u32::try_from(bytes >> block_size.bits()).unwrap_or(u32::MAX),
        };
        JournalLength { blocks: log.saturating_add(fast), fast_commit_blocks: fast }
    }
}

/// Returns the default length of a journal in blocks, without its blocks for fast commits, in a
/// file system of `blocks` blocks; 0 if the file system is too small for a journal.
pub(super) fn default_blocks(blocks: u64) -> u32 {
    const SIZES: [(u64, u32); 8] = [
        (2 << 10, 0),
        (32 << 10, 1 << 10),
        (256 << 10, 4 << 10),
        (512 << 10, 8 << 10),
        (4 << 20, 16 << 10),
        (8 << 20, 32 << 10),
        (16 << 20, 64 << 10),
        (32 << 20, 128 << 10),
    ];
    SIZES.iter().find(|(below, _)| blocks < *below).map_or(256 << 10, |&(_, size)| size)
}

/// Returns how many blocks a journal has for fast commits by default, in addition to its log. The
/// file system has `blocks` blocks. The number is a 64th of the default journal length, even if the
/// journal has another length (observed from mke2fs).
pub(super) fn fast_commit_blocks(blocks: u64) -> u32 {
    default_blocks(blocks).max(LEAST_BLOCKS) / 64
}

/// Returns the block at which the search for the journal's blocks starts: the first block of a
/// group near the middle, so that seeks to the journal are short. Chooses the group with the most
/// room among the middle group and its neighbours. But if the file system has flexible groups of
/// `n` groups each, and the number of the middle group is above `n`, chooses between two other
/// groups: the first group with free blocks in or after the middle flexible group, and the group
/// that follows it.
pub(super) fn goal(geometry: &Geometry, used: &Runs) -> u64 {
    let middle = lanefs_ondisk::Block(geometry.block_count() / 2);
    let middle = geometry.group_of(middle).map_or(0, |(group, _)| group.0);
    let flex = geometry.flex_size();
    let first = if flex > 1 && middle > flex {
        let first = geometry.flex_first_group(Group(middle)).0;
        let mut groups = first..geometry.group_count();
        groups.find(|&group| free_in(geometry, used, group) > 0).unwrap_or(0)
    } else {
        middle.saturating_sub(1)
    };
    let from = if flex > 1 && middle > flex { first } else { middle };
    let last = (from + 1).min(geometry.group_count() - 1);
    let mut best = (first, free_in(geometry, used, first));
    for group in first + 1..=last {
        let free = free_in(geometry, used, group);
        if free > best.1 {
            best = (group, free);
        }
    }
    geometry.group_first_block(Group(best.0)).map_or(0, |block| block.0)
}

fn free_in(geometry: &Geometry, used: &Runs, group: u32) -> u64 {
    let (Some(first), Some(last)) =
        (geometry.group_first_block(Group(group)), geometry.group_last_block(Group(group)))
    else {
        return 0;
    };
    let range = first.0..last.0 + 1;
    let taken: u64 = used.used_in(range.clone()).map(|run| run.end - run.start).sum();
    range.end - range.start - taken
}
