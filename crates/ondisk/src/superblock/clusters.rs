//! The arithmetic of clusters.

/// The size of clusters (feature `bigalloc`): space is allocated in runs of `2^bits` blocks, each
/// of which starts at a multiple of `2^bits`. Each of these runs is a cluster. One bit of a block
/// bitmap represents one cluster. Extents still count blocks. Without `bigalloc` a cluster is a
/// block.
///
/// Format: <https://docs.kernel.org/filesystems/ext4/>, "Bigalloc".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clusters {
    bits: u32,
}

impl Clusters {
    /// Returns the size of clusters of `2^bits` blocks. If `bits` is above 16, it counts as 16.
    pub const fn new(bits: u32) -> Clusters {
        Clusters { bits: if bits > 16 { 16 } else { bits } }
    }

    /// Returns whether a cluster is a single block.
    pub fn are_blocks(self) -> bool {
        self.bits == 0
    }

    /// Returns the binary logarithm of the number of blocks of a cluster.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Returns the number of blocks of a cluster.
    pub fn blocks(self) -> u32 {
        1 << self.bits
    }

    /// Returns the number of clusters that are needed to hold `blocks` blocks.
    pub fn holding(self, blocks: u32) -> u32 {
        (blocks >> self.bits) + u32::from(blocks & self.mask() != 0)
    }

    /// Returns the first block of the cluster that contains a file block.
    pub fn floor(self, block: u32) -> u32 {
        block & !self.mask()
    }

    /// Returns `block` if a cluster starts at it, otherwise the start of the next cluster. Returns
    /// `u32::MAX` if no cluster follows.
    pub fn ceil(self, block: u32) -> u32 {
        match block & self.mask() {
            0 => block,
            within => block.saturating_add(self.blocks() - within),
        }
    }

    /// Returns the index of a block in its cluster. `block` is a block number of the file system or
    /// of a file.
    pub fn offset(self, block: u64) -> u32 {
        block as u32 & self.mask()
    }

    fn mask(self) -> u32 {
        self.blocks() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_rounded_to_clusters() {
        let four = Clusters::new(2);
        assert_eq!([0, 1, 4, 5, u32::MAX].map(|n| four.holding(n)), [0, 1, 1, 2, 1 << 30]);
        assert_eq!([0, 3, 4, 7].map(|n| four.floor(n)), [0, 0, 4, 4]);
        assert_eq!([0, 1, 4, 5].map(|n| four.ceil(n)), [0, 4, 4, 8]);
        assert_eq!(four.ceil(u32::MAX), u32::MAX, "no cluster follows");
        assert_eq!(four.offset((1 << 40) + 6), 2);
        let one = Clusters::new(0);
        assert_eq!((one.holding(7), one.floor(7), one.ceil(7), one.offset(7)), (7, 7, 7, 0));
    }
}
