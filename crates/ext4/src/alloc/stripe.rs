//! The stripe that large allocations are aligned to.

use lanefs_ondisk::superblock::Superblock;

/// Returns the length of the stripe in clusters. Like the kernel's ext4, uses `option` if set, else
/// the superblock's stripe width, else the superblock's stride. If none of them is set, uses
/// `row_bytes`, the length in bytes of a whole row of the underlying device. A stripe longer than a
/// group counts as not set. Returns 0 if there is no stripe or, as in the kernel, if the stripe
/// does not consist of whole clusters.
pub(crate) fn stripe_of(superblock: &Superblock, option: u32, row_bytes: u64) -> u32 {
    let geometry = superblock.geometry();
    let row = row_bytes / geometry.block_size().bytes() as u64;
    let stride = u64::from(superblock.raid_stride());
    [u64::from(option), u64::from(superblock.raid_stripe_width()), stride, row]
        .into_iter()
        .filter_map(|blocks| u32::try_from(blocks).ok())
        .find(|blocks| (1..=geometry.blocks_per_group()).contains(blocks))
        .filter(|blocks| geometry.clusters().offset(u64::from(*blocks)) == 0)
        .map(|blocks| blocks >> geometry.cluster_bits())
        // A stripe of one cluster counts as none, since every cluster is aligned to it.
        .filter(|clusters| *clusters > 1)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_ondisk::superblock::RawSuperblock;

    fn superblock(stride: u16, width: u32) -> Superblock {
        let mut raw = RawSuperblock::zeroed();
        raw.s_magic.set(0xef53);
        raw.s_rev_level.set(1);
        raw.s_log_block_size.set(2);
        raw.s_log_cluster_size.set(2);
        raw.s_blocks_per_group.set(32_768);
        raw.s_clusters_per_group.set(32_768);
        raw.s_inodes_per_group.set(64);
        raw.s_inodes_count.set(64);
        raw.s_inode_size.set(256);
        raw.s_first_ino.set(11);
        raw.s_blocks_count_lo.set(32_768);
        raw.s_raid_stride.set(stride);
        raw.s_raid_stripe_width.set(width);
        Superblock::from_raw(raw).expect("a superblock")
    }

    #[test]
    fn the_option_comes_first_then_the_superblock_then_the_device() {
        let row = 20 * 4096;
        assert_eq!(stripe_of(&superblock(16, 48), 7, row), 7);
        assert_eq!(stripe_of(&superblock(16, 48), 0, row), 48);
        assert_eq!(stripe_of(&superblock(16, 0), 0, row), 16);
        assert_eq!(stripe_of(&superblock(0, 0), 0, row), 20);
        assert_eq!(stripe_of(&superblock(0, 0), 0, 0), 0);
    }

    #[test]
    fn a_stripe_longer_than_a_group_or_of_one_block_is_ignored() {
        assert_eq!(stripe_of(&superblock(16, 48), 32_769, 0), 48);
        assert_eq!(stripe_of(&superblock(16, u32::MAX), 0, 0), 16);
        assert_eq!(stripe_of(&superblock(0, 0), 0, u64::MAX), 0);
        assert_eq!(stripe_of(&superblock(16, 1), 0, 0), 0);
    }
}
