//! The superblock of a new file system, without the fields that depend on the layout.

use super::MkfsOptions;
use super::numbers::{FIRST_INO, Numbers};
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::encryption;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::superblock::{DefaultMountOptions, OnError, RawSuperblock, State, SuperFlags};
use zerocopy::little_endian::U32;

const HASH_HALF_MD4: u8 = 1;
const CHECKSUM_CRC32C: u8 = 1;
/// Unicode 12.1 in UTF-8, the only encoding of names.
const ENCODING_UTF8_12_1: u16 = 1;
/// The flag in `s_encoding_flags` that requires names to be valid.
const STRICT_ENCODING: u16 = 1;

impl Numbers {
    /// Returns the superblock without the fields that depend on the layout.
    pub(super) fn raw_superblock(&self, options: &MkfsOptions) -> RawSuperblock {
        // The UUID is zero until `MkfsOptions::identified` has chosen one; the geometry does not
        // depend on the UUID.
        let uuid = options.uuid.unwrap_or_default();
        let time = options.time.unwrap_or_default();
        let (features, low_time, high_time) = (self.features, time as u32, (time >> 32) as u8);
        let mut raw = RawSuperblock::zeroed();
        raw.s_inodes_count.set(self.inodes());
        set_wide(&mut raw.s_blocks_count_lo, &mut raw.s_blocks_count_hi, self.blocks);
        set_wide(&mut raw.s_r_blocks_count_lo, &mut raw.s_r_blocks_count_hi, self.reserved);
        raw.s_first_data_block.set(self.first_data_block() as u32);
        raw.s_log_block_size.set(self.block_size.bits() - 10);
        raw.s_log_cluster_size.set(self.block_size.bits() + self.clusters.bits() - 10);
        raw.s_blocks_per_group.set(self.blocks_per_group);
        raw.s_clusters_per_group.set(self.blocks_per_group >> self.clusters.bits());
        raw.s_inodes_per_group.set(self.inodes_per_group);
        raw.s_wtime.set(low_time);
        raw.s_lastcheck.set(low_time);
        raw.s_mkfs_time.set(low_time);
        (raw.s_wtime_hi, raw.s_lastcheck_hi, raw.s_mkfs_time_hi) =
            (high_time, high_time, high_time);
        raw.s_max_mnt_count.set(u16::MAX);
        raw.s_state.set(State::VALID.bits());
        raw.s_errors.set(match options.on_error {
            OnError::Continue => 1,
            OnError::ReadOnly => 2,
            OnError::Panic => 3,
        });
        raw.s_rev_level.set(1);
        raw.s_first_ino.set(FIRST_INO);
        raw.s_inode_size.set(self.inode_size);
        raw.s_feature_compat.set(features.compat.bits());
        raw.s_feature_incompat.set(features.incompat.bits());
        raw.s_feature_ro_compat.set(features.ro_compat.bits());
        raw.s_uuid = uuid;
        raw.s_volume_name[..options.label.len()].copy_from_slice(&options.label);
        raw.s_last_mounted[..options.last_mounted.len()].copy_from_slice(&options.last_mounted);
        raw.s_reserved_gdt_blocks.set(self.reserved_gdt);
        let seed = options.hash_seed.unwrap_or_default();
        for (word, bytes) in raw.s_hash_seed.iter_mut().zip(seed.as_chunks().0) {
            word.set(u32::from_le_bytes(*bytes));
        }
        raw.s_def_hash_version = HASH_HALF_MD4;
        let options_set = DefaultMountOptions::USER_XATTR | DefaultMountOptions::ACL;
        raw.s_default_mount_opts.set(options_set.bits());
        if features.incompat.contains(Incompat::BIT64) {
            raw.s_desc_size.set(self.desc_size());
        }
        if self.inode_size > 128 {
            raw.s_min_extra_isize.set(32);
            raw.s_want_extra_isize.set(32);
        }
        let mut flags = SuperFlags::SIGNED_HASH;
        flags.set(SuperFlags::TEST_FILESYS, options.is_test);
        raw.s_flags.set(flags.bits());
        raw.s_raid_stride.set(options.stride);
        raw.s_raid_stripe_width.set(options.stripe_width);
        if features.incompat.contains(Incompat::MMP) {
            raw.s_mmp_interval.set(options.mmp_update_interval);
        }
        if features.incompat.contains(Incompat::FLEX_BG) {
            raw.s_log_groups_per_flex = options.groups_per_flex.trailing_zeros() as u8;
        }
        if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            raw.s_checksum_type = CHECKSUM_CRC32C;
        }
        if features.incompat.contains(Incompat::CSUM_SEED) {
            raw.s_checksum_seed.set(Seed::of_uuid(&uuid).value());
        }
        for (field, group) in raw.s_backup_bgs.iter_mut().zip(self.backup_groups()) {
            field.set(group);
        }
        if features.incompat.contains(Incompat::CASEFOLD) {
            raw.s_encoding.set(ENCODING_UTF8_12_1);
            let is_strict = options.folding == Folding::Strict;
            raw.s_encoding_flags.set(if is_strict { STRICT_ENCODING } else { 0 });
        }
        if features.incompat.contains(Incompat::ENCRYPT) {
            raw.s_encrypt_algos = encryption::ALGORITHMS;
        }
        if features.compat.contains(Compat::HAS_JOURNAL) {
            raw.s_journal_inum.set(8);
        }
        if features.compat.contains(Compat::ORPHAN_FILE) {
            raw.s_orphan_file_inum.set(FIRST_INO + 1);
        }
        raw
    }
}

fn set_wide(low: &mut U32, high: &mut U32, value: u64) {
    low.set(value as u32);
    high.set((value >> 32) as u32);
}
