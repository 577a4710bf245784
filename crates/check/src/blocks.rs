//! Claims the blocks of one inode, and compares their number with the inode's fields.

use crate::fault::Fault;
use crate::mapping::{self, Sink};
use crate::place::Place;
use crate::record::Record;
use crate::run::Run;
use lanefs_ondisk::extent::{Extent, State};
use lanefs_ondisk::features::Incompat;
use lanefs_ondisk::{Block, FileBlock, Ino};
use std::ops::Range;

/// Without `large_dir`, a directory is smaller than this number of bytes.
const MAX_DIRECTORY: u64 = 2 << 30;

/// The result of claiming the blocks of one inode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Claimed {
    /// The number of data blocks and mapping blocks together. With `bigalloc`, the number of their
    /// clusters.
    pub clusters: u64,
    /// The last mapped block of the file.
    pub last: Option<u32>,
    /// The last mapped block that holds data.
    pub last_written: Option<u32>,
    /// Whether the walk met a fault. In that case the other fields do not cover the whole file.
    pub is_partial: bool,
    /// The device block of the first data block that the walk found.
    pub first_block: Option<Block>,
    /// The number of extents. In a block map, each run of adjacent blocks counts as an extent.
    pub runs: u64,
}

struct FileBlocks<'a> {
    run: &'a Run<'a>,
    ino: Ino,
    is_directory: bool,
    claimed: Claimed,
    /// The cluster of the previous extent's last block, and that cluster's position in the file,
    /// counted in clusters. The next extent may begin in the same cluster, at the same position.
    last_cluster: Option<(u64, u64)>,
}

/// Claims the blocks of an inode that maps blocks.
pub fn claim(run: &Run<'_>, ino: Ino, record: &Record) -> Claimed {
    let mut blocks = FileBlocks {
        run,
        ino,
        is_directory: record.is_directory(),
        claimed: Claimed::default(),
        last_cluster: None,
    };
    mapping::walk(run.volume, ino, record, &mut blocks);
    blocks.claimed
}

impl FileBlocks<'_> {
    /// Claims clusters. For the resize inode, only the first block is claimed, because all its
    /// other blocks are reserved descriptor blocks, which the groups claim. The module `special`
    /// checks that the inode refers to exactly these blocks.
    fn claim(&self, place: Place, clusters: Range<u64>) {
        if self.ino != Ino::RESIZE || self.claimed.clusters == 1 {
            self.run.claim_clusters(place, clusters);
        }
    }

    fn check_directory(&mut self, extent: &Extent) {
        let place = Place::Inode { ino: self.ino };
        if extent.state == State::Unwritten {
            self.run.add(place, Fault::UnwrittenDirectory { block: extent.start });
        }
        let bits = self.run.volume.geometry.block_size().bits();
        let most = MAX_DIRECTORY >> bits;
        if !self.run.volume.incompat(Incompat::LARGE_DIR) && u64::from(extent.end()) > most {
            self.run.add(place, Fault::TooFar { block: extent.start });
        }
    }
}

impl Sink for FileBlocks<'_> {
    fn data(&mut self, extent: Extent) {
        let claimed = &mut self.claimed;
        claimed.last = claimed.last.max(Some(extent.end().saturating_sub(1)));
        if extent.state == State::Written {
            claimed.last_written = claimed.last_written.max(Some(extent.end().saturating_sub(1)));
        }
        claimed.first_block = claimed.first_block.or(Some(extent.block));
        claimed.runs += 1;
        if self.is_directory {
            self.check_directory(&extent);
        }
        let place = Place::Inode { ino: self.ino };
        let mut clusters = self.run.clusters(extent.block, extent.len.into());
        let bits = self.run.volume.geometry.cluster_bits();
        let mask = (1u64 << bits) - 1;
        let last = (clusters.end - 1, u64::from(extent.end().saturating_sub(1)) >> bits);
        let first = (clusters.start, u64::from(extent.start.0) >> bits);
        let is_divided = self.last_cluster.is_some_and(|(at, n)| n == first.1 && at != first.0);
        let is_shifted = extent.block.0 & mask != u64::from(extent.start.0) & mask;
        // The alignment of the resize inode's blocks is not checked, because the positions of
        // reserved descriptor blocks depend on the groups and not on cluster boundaries.
        if bits > 0 && self.ino != Ino::RESIZE && (is_shifted || is_divided) {
            self.run.add(place, Fault::ClusterOffset { block: extent.start });
        }
        if self.last_cluster == Some(first) && bits > 0 {
            clusters.start += 1;
        }
        self.last_cluster = Some(last);
        // e2fsck counts a cluster for each of the resize inode's blocks.
        self.claimed.clusters += match self.ino {
            Ino::RESIZE => extent.len.into(),
            _ => clusters.end.saturating_sub(clusters.start),
        };
        self.claim(place, clusters);
    }

    fn meta(&mut self, block: Block) {
        self.claimed.clusters += 1;
        let place = Place::Node { ino: self.ino, block: Some(block) };
        self.claim(place, self.run.clusters(block, 1));
    }

    fn fault(&mut self, place: Place, fault: Fault) {
        self.claimed.is_partial = true;
        self.run.add(place, fault);
    }
}

/// Compares `i_blocks` and the size of an inode with its claimed blocks. `attributes` is the number
/// of blocks, or of clusters with `bigalloc`, that its attributes take.
pub fn check_counts(run: &Run<'_>, ino: Ino, record: &Record, claimed: &Claimed, attributes: u64) {
    let place = Place::Inode { ino };
    let geometry = &run.volume.geometry;
    let blocks = (claimed.clusters + attributes) << geometry.cluster_bits();
    let huge = run.volume.ro_compat(lanefs_ondisk::features::RoCompat::HUGE_FILE)
        && record.flags.contains(lanefs_ondisk::inode::InodeFlags::HUGE_FILE);
    let expected =
        if huge { blocks } else { blocks * (geometry.block_size().bytes() as u64 / 512) };
    let found = record.blocks(geometry);
    if found != expected && !claimed.is_partial {
        run.add(place, Fault::Sectors { found, expected });
    }
    // An orphan may have blocks after its end.
    if !claimed.is_partial && !size_fits(run, record, claimed) && !run.orphans.contains(&ino) {
        let last = claimed.last.map(FileBlock);
        run.add(place, Fault::Size { size: record.size(), last });
    }
}

fn size_fits(run: &Run<'_>, record: &Record, claimed: &Claimed) -> bool {
    use lanefs_ondisk::FileType::{Directory, Symlink};
    use lanefs_ondisk::inode::InodeFlags;
    let geometry = &run.volume.geometry;
    let bits = geometry.block_size().bits();
    let size = record.size();
    let next = claimed.last.map_or(0, |last| u64::from(last) + 1);
    if record.flags.contains(InodeFlags::INLINE_DATA) {
        return true;
    }
    match record.file_type() {
        Some(Directory) => {
            let slack = u64::from(run.volume.raw().s_prealloc_dir_blocks);
            let blocks = size >> bits;
            size.is_multiple_of(1 << bits) && blocks <= next && next - blocks <= slack
        }
        Some(Symlink) => true,
        _ => {
            let data = claimed.last_written.map_or(0, |last| u64::from(last) << bits);
            let most = match record.flags.contains(InodeFlags::EXTENTS) {
                true => geometry.max_file_size(),
                false => max_pointed(geometry),
            };
            let is_short = size < data || size == data && size > 0 && record.ends_at_size();
            (!is_short || record.flags.contains(InodeFlags::VERITY)) && size <= most
        }
    }
}

/// Returns the largest size of a file that is mapped by block pointers.
fn max_pointed(geometry: &lanefs_ondisk::superblock::Geometry) -> u64 {
    let bits = geometry.block_size().bits();
    let per_block = 1u64 << (bits - 2);
    let blocks = 12 + per_block + per_block.pow(2) + per_block.saturating_pow(3);
    // Without `huge_file`, `i_blocks` counts sectors in only 32 bits. As in e2fsck, this does not
    // limit the size here, because `check_counts` compares `i_blocks` itself.
    blocks << bits
}
