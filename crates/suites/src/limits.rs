//! The limits of files, so that generators can draw sizes and offsets at them.

use crate::image::{Mappings, block_size_of, cluster_size_of};
use fastrand::Rng;
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::block_map::{fanout, max_file_size};

/// The number of blocks of the largest file with extents.
const MOST_BLOCKS: u64 = (1 << 32) - 1;
/// The largest number of sectors that an inode can count without the feature `huge_file`.
const MOST_SECTORS: u64 = (1 << 32) - 1;

/// The limits of a file in an image.
#[derive(Clone, Debug)]
pub struct Limits {
    block: u64,
    cluster: u64,
    /// The size in bytes of the largest file.
    pub largest: u64,
    /// The end of the largest range for fallocate(2), in bytes. A hole may lie beyond the largest
    /// file with a block map.
    pub last_range: u64,
    /// Offsets at which numbers overflow, formats end, or levels of a block map begin.
    places: Vec<u64>,
}

impl Limits {
    /// Returns the limits in an image that mke2fs makes with `options`.
    pub fn of(options: &str) -> Limits {
        let (block, cluster) = (block_size_of(options), cluster_size_of(options));
        let size = BlockSize::new(block as u32).expect("a block size");
        let mut places = vec![0, 1 << 31, 1 << 32, block << 31, block << 32];
        let mut last_range = MOST_BLOCKS * block / cluster * cluster;
        let largest = match Mappings::of(options) {
            Mappings::BlockMaps => {
                // Such an image has no `huge_file`. Lanefs leaves room for nodes here, and the
                // kernel does not, so no place is near this limit.
                last_range = last_range.min((1 << 41) - (1 << 20));
                places.retain(|place| *place < last_range - (1 << 20));
                let level = fanout(size) as u64;
                let levels = [12, 12 + level, 12 + level + level * level];
                places.extend(levels.map(|blocks| blocks * block));
                max_file_size(size, MOST_SECTORS / (block / 512))
            }
            Mappings::Extents | Mappings::Encrypted => last_range,
        };
        places.push(largest);
        Limits { block, cluster, largest, last_range, places }
    }

    /// Returns an offset at a limit, or a little before or after it.
    pub fn near(&self, rng: &mut Rng) -> u64 {
        let place = self.places[rng.usize(..self.places.len())];
        let unit = if rng.bool() { self.block } else { self.cluster };
        let distance = rng.u64(..3) * unit + rng.u64(..3);
        match rng.u32(..4) {
            0 => place,
            1 => place + distance,
            _ => place.saturating_sub(distance),
        }
    }

    /// Returns a range between two limits, or a short one at a limit.
    pub fn range(&self, rng: &mut Rng) -> (u64, u64) {
        let (from, to) = (self.near(rng), self.near(rng));
        match rng.u32(..3) {
            0 if from != to => (from.min(to), from.abs_diff(to)),
            1 => (from, rng.u64(1..4) * self.cluster),
            _ => (from, rng.u64(1..3 * self.cluster)),
        }
    }

    /// Works like [`Limits::range`], with a range of whole clusters.
    pub fn clusters(&self, rng: &mut Rng) -> (u64, u64) {
        let (from, len) = self.range(rng);
        (from / self.cluster * self.cluster, len.next_multiple_of(self.cluster))
    }
}
