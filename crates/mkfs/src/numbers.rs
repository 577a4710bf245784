//! Chooses sizes and counts as mke2fs does for the same device and options.

use crate::journal;
use crate::journal::JournalLength;
use crate::options;
use crate::options::{InodeCount, JournalSize, MkfsOptions, TablePlaces};
use crate::report::MkfsError;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat};
use lanefs_ondisk::superblock::{
    Clusters, DefaultMountOptions, OnError, RawSuperblock, State, SuperFlags,
};
use lanefs_ondisk::{BlockSize, encryption};
use zerocopy::little_endian::U32;

/// A last group that is shorter than the others is kept only if it has at least this many free
/// blocks.
const MIN_LAST_GROUP: u64 = 50;
/// The smallest size in bytes. A smaller device has no room for the metadata of one group, whatever
/// the options.
const MIN_BYTES: u64 = 16 << 10;
/// The first inode that is not reserved; mke2fs uses it for `lost+found`.
pub(crate) const FIRST_INO: u32 = 11;

/// The sizes and counts of a new file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) block_size: BlockSize,
    pub(crate) clusters: Clusters,
    pub(crate) blocks: u64,
    pub(crate) reserved: u64,
    pub(crate) blocks_per_group: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) groups: u32,
    pub(crate) reserved_gdt: u16,
    pub(crate) inode_size: u16,
    pub(crate) journal: JournalLength,
    pub(crate) features: Features,
    pub(crate) tables: TablePlaces,
    /// Number of blocks to which the file system can grow; `None` chooses 1,024 times the size.
    most_blocks: Option<u64>,
}

impl Numbers {
    pub(crate) fn choose(options: &MkfsOptions, device: u64) -> Result<Numbers, MkfsError> {
        let bytes = options.size.unwrap_or(device);
        if bytes > device {
            return Err(MkfsError::BeyondDevice { device, wanted: bytes });
        }
        if bytes < MIN_BYTES {
            return Err(MkfsError::TooSmall { bytes });
        }
        let (_, default_ratio) = options.usage.defaults(bytes);
        let block_size = options.block_size_for(bytes);
        let block_size = block_size.ok_or(MkfsError::Option { option: "block size" })?;
        let clusters = options.clusters_for(block_size)?;
        let blocks = count_blocks(options, bytes, block_size) >> clusters.bits() << clusters.bits();
        // Unless an option requests it, mke2fs does not make more inodes than clusters.
        let ratio = default_ratio.max((block_size.bytes() as u32) << clusters.bits());
        let inodes = count_inodes(options, ratio, blocks, block_size)?;
        let mut numbers = Numbers::undivided(options, block_size, blocks)?;
        numbers.divide(blocks, inodes)?;
        numbers.choose_journal(options)?;
        Ok(numbers)
    }

    /// Returns the numbers that do not depend on the division into groups.
    fn undivided(
        options: &MkfsOptions,
        block_size: BlockSize,
        blocks: u64,
    ) -> Result<Numbers, MkfsError> {
        let mut features = options::settled(options.features);
        if options.journal == JournalSize::None {
            features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE;
        }
        // The resize inode has 32-bit block numbers, so it cannot reserve blocks beyond 2^32.
        if blocks > u64::from(u32::MAX) {
            features.compat -= Compat::RESIZE_INODE;
            if !features.incompat.contains(Incompat::BIT64) {
                return Err(MkfsError::TooLarge { blocks });
            }
        }
        if let Some(wanted) = options.most_blocks.filter(|&most| most <= blocks) {
            return Err(MkfsError::Growth { wanted, blocks });
        }
        let clusters = options.clusters_for(block_size)?;
        let most = block_size.most_blocks_per_group();
        let per_group = options.blocks_per_group.unwrap_or(most).min(most) << clusters.bits();
        Ok(Numbers {
            block_size,
            clusters,
            blocks,
            reserved: (options.reserved_percent * blocks as f64 / 100.0) as u64,
            blocks_per_group: per_group,
            inodes_per_group: 0,
            groups: 0,
            reserved_gdt: 0,
            inode_size: options.inode_size,
            journal: JournalLength::default(),
            features,
            tables: options.tables,
            most_blocks: options.most_blocks,
        })
    }

    /// Returns the numbers for exactly `blocks` blocks and at least `inodes` inodes, with `reserve`
    /// blocks for the present descriptors and for further ones. The journal is chosen later.
    pub(crate) fn fitted(
        options: &MkfsOptions,
        block_size: BlockSize,
        blocks: u64,
        inodes: u32,
        reserve: u32,
    ) -> Result<Numbers, MkfsError> {
        let mut numbers = Numbers::undivided(options, block_size, blocks)?;
        let features = numbers.features;
        let wrong = [
            (!features.incompat.contains(Incompat::FLEX_BG), "size (without flex_bg, give one)"),
            (
                !features.compat.contains(Compat::RESIZE_INODE),
                "size (without resize_inode, give one)",
            ),
            (
                features.compat.contains(Compat::SPARSE_SUPER2),
                "size (with sparse_super2, give one)",
            ),
            (features.ro_compat.contains(RoCompat::BIGALLOC), "size (with bigalloc, give one)"),
            (options.blocks_per_group.is_some(), "blocks per group (give a size)"),
            (options.most_blocks.is_some(), "size to grow to (give a size)"),
        ];
        if let Some((_, option)) = wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(MkfsError::Option { option });
        }
        let in_groups = blocks.saturating_sub(numbers.first_data_block());
        let groups = in_groups.div_ceil(numbers.blocks_per_group.into());
        numbers.groups = u32::try_from(groups).map_err(|_| MkfsError::TooLarge { blocks })?;
        if numbers.groups == 0 {
            return Err(MkfsError::TooSmall { bytes: blocks << block_size.bits() });
        }
        // `fill_table` never rounds a multiple of 8 down, so the groups have at least `inodes`
        // inodes in total.
        let per_group = inodes.div_ceil(numbers.groups).next_multiple_of(8);
        numbers.inodes_per_group = numbers.fill_table(per_group);
        if numbers.inodes_per_group > numbers.most_inodes_per_group() {
            return Err(MkfsError::TooManyInodes { inodes: inodes.into() });
        }
        let descriptors = numbers.groups.div_ceil(numbers.descs_per_block());
        let growth = reserve.checked_sub(descriptors).ok_or(MkfsError::TooLarge { blocks })?;
        numbers.reserved_gdt = growth as u16;
        Ok(numbers)
    }

    /// Divides the blocks into groups, and the inodes among the groups. Makes groups smaller if a
    /// bitmap cannot hold the inodes of one group; drops a last group that is too short.
    fn divide(&mut self, blocks: u64, inodes: u32) -> Result<(), MkfsError> {
        let bits = self.block_size.bytes() as u32 * 8;
        let bytes = blocks << self.block_size.bits();
        let reserved = self.reserved;
        loop {
            let in_groups = self.blocks.saturating_sub(self.first_data_block());
            let groups = in_groups.div_ceil(self.blocks_per_group.into());
            self.groups =
                u32::try_from(groups).map_err(|_| MkfsError::TooLarge { blocks: self.blocks })?;
            if self.groups == 0 {
                return Err(MkfsError::TooSmall { bytes });
            }
            let per_group = inodes.div_ceil(self.groups);
            if per_group > bits {
                if !self.clusters.are_blocks() || self.blocks_per_group < 256 {
                    return Err(MkfsError::TooManyInodes { inodes: inodes.into() });
                }
                self.blocks_per_group -= 8;
                self.blocks = blocks;
                continue;
            }
            // With blocks of 8 KiB or more, the maximum number of inodes in a group is smaller than
            // the number of bits in a bitmap. If a group would exceed this maximum, mke2fs makes
            // fewer inodes, not smaller groups.
            let per_group = per_group.min(self.most_inodes_per_group());
            self.inodes_per_group = self.fill_table(per_group);
            self.reserve_descriptors();
            let overhead = self.last_group_overhead();
            if overhead > self.blocks_per_group.into() {
                return Err(MkfsError::TooManyInodes { inodes: inodes.into() });
            }
            let last = in_groups % u64::from(self.blocks_per_group);
            if self.groups == 1 && last != 0 && last < overhead {
                return Err(MkfsError::TooSmall { bytes });
            }
            if last == 0 || self.groups == 1 || last >= overhead + MIN_LAST_GROUP {
                break;
            }
            let fewer = self.blocks - last;
            let reserved = u128::from(reserved) * u128::from(fewer) / u128::from(blocks);
            self.reserved = reserved as u64;
            self.blocks = fewer;
        }
        if self.inodes() <= FIRST_INO {
            return Err(MkfsError::TooSmall { bytes });
        }
        Ok(())
    }

    /// Rounds the inodes per group, usually up, so that they fill whole blocks of the inode table
    /// and whole bytes of the bitmap.
    fn fill_table(&self, per_group: u32) -> u32 {
        let per_block = self.block_size.bytes() as u32 / u32::from(self.inode_size);
        let mut filled = (per_group.div_ceil(per_block) * per_block).max(8) & !7;
        while u64::from(filled) * u64::from(self.groups) > u32::MAX.into() {
            filled -= 8;
        }
        filled
    }

    pub(crate) fn most_inodes_per_group(&self) -> u32 {
        let per_block = self.block_size.bytes() as u32 / u32::from(self.inode_size);
        self.block_size.most_inodes_per_group(per_block)
    }

    pub(crate) fn inodes(&self) -> u32 {
        self.inodes_per_group * self.groups
    }

    /// With a resize inode, reserves blocks after the descriptors for further descriptors: at most
    /// as many blocks as there are pointers in one block. If the descriptors and the reserved
    /// blocks would take more than three quarters of a group, reserves none, and spreads the
    /// descriptors over the groups (`meta_bg`).
    fn reserve_descriptors(&mut self) {
        self.reserved_gdt = 0;
        let desc_blocks = self.groups.div_ceil(self.descs_per_block());
        if self.features.compat.contains(Compat::RESIZE_INODE) {
            let wanted = |most: u64| {
                let most = most.min(u32::MAX.into()) - self.first_data_block();
                let groups = most.div_ceil(self.blocks_per_group.into());
                groups.div_ceil(self.descs_per_block().into()) as u32
            };
            // Like mke2fs, ignores a wanted size that needs no further descriptor blocks.
            let wish = self.most_blocks.map(wanted).filter(|&wish| wish > desc_blocks);
            let wanted = wish.unwrap_or_else(|| wanted(self.blocks.saturating_mul(1024)));
            let pointers = self.block_size.bytes() as u32 / 4;
            self.reserved_gdt = wanted.saturating_sub(desc_blocks).min(pointers) as u16;
        }
        if desc_blocks + u32::from(self.reserved_gdt) > self.blocks_per_group / 4 * 3 {
            self.features.compat -= Compat::RESIZE_INODE;
            self.features.incompat |= Incompat::META_BG;
            self.reserved_gdt = 0;
        }
    }

    /// Returns how many blocks of the last group would be metadata without `flex_bg`.
    fn last_group_overhead(&self) -> u64 {
        let table = (self.inodes_per_group * u32::from(self.inode_size))
            .div_ceil(self.block_size.bytes() as u32);
        let last = self.groups - 1;
        let head = if !self.has_super(last) {
            0
        } else if self.features.incompat.contains(Incompat::META_BG) {
            2
        } else {
            let descriptors = self.groups.div_ceil(self.descs_per_block());
            1 + descriptors + u32::from(self.reserved_gdt)
        };
        u64::from(2 + table + head)
    }

    fn choose_journal(&mut self, options: &MkfsOptions) -> Result<(), MkfsError> {
        self.set_journal(options, journal::default_blocks(self.blocks));
        let JournalLength { blocks, fast_commit_blocks } = self.journal;
        let most = (self.blocks / 2).min(10_240_000);
        let is_short = blocks - fast_commit_blocks < journal::LEAST_BLOCKS;
        // As in mke2fs, a journal may take more than half of the file system if its size was not
        // given.
        let is_given = options.journal != JournalSize::BySize
            || options.fast_commit_bytes.is_some_and(|bytes| bytes > 0);
        match blocks > 0 && is_given && (is_short || u64::from(blocks) > most) {
            true => Err(MkfsError::JournalSize { blocks }),
            false => Ok(()),
        }
    }

    /// Sets the journal's length: the length that the options specify, or else `by_size` blocks.
    /// Without a journal the features that need one are dropped.
    pub(crate) fn set_journal(&mut self, options: &MkfsOptions, by_size: u32) {
        self.journal =
            JournalLength::choose(options, self.features, self.block_size, self.blocks, by_size);
        if self.journal.blocks == 0 {
            self.features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE;
        }
    }

    pub(crate) fn first_data_block(&self) -> u64 {
        u64::from(self.block_size.bytes() == 1024 && self.clusters.are_blocks())
    }

    pub(crate) fn desc_size(&self) -> u16 {
        if self.features.incompat.contains(Incompat::BIT64) { 64 } else { 32 }
    }

    fn descs_per_block(&self) -> u32 {
        self.block_size.bytes() as u32 / u32::from(self.desc_size())
    }

    /// Returns the groups that contain the backups with `sparse_super2`: the second group and the
    /// last.
    pub(crate) fn backup_groups(&self) -> [u32; 2] {
        match self.groups {
            _ if !self.features.compat.contains(Compat::SPARSE_SUPER2) => [0; 2],
            0 | 1 => [0; 2],
            2 => [1, 0],
            groups => [1, groups - 1],
        }
    }

    /// Returns whether a group starts with a superblock. `Geometry::group_has_super` does the same,
    /// but needs a geometry, and there is none yet.
    fn has_super(&self, group: u32) -> bool {
        let is_power = |base: u32| (0..21).any(|n| base.checked_pow(n) == Some(group));
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            group == 0 || self.backup_groups().contains(&group)
        } else if self.features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            group == 0 || [3, 5, 7].into_iter().any(is_power)
        } else {
            true
        }
    }
}

/// Returns the number of whole blocks in the file system. The size of a whole device is first
/// rounded down to pages of 4 KiB, as in mke2fs.
fn count_blocks(options: &MkfsOptions, bytes: u64, block_size: BlockSize) -> u64 {
    let bytes = if options.size.is_none() { bytes & !4095 } else { bytes };
    bytes >> block_size.bits()
}

fn count_inodes(
    options: &MkfsOptions,
    default_ratio: u32,
    blocks: u64,
    block_size: BlockSize,
) -> Result<u32, MkfsError> {
    let bytes = blocks << block_size.bits();
    let by_ratio = |ratio: u32| (bytes / u64::from(ratio)).min(u32::MAX.into()) as u32;
    let inodes = match options.inodes {
        InodeCount::BySize => by_ratio(default_ratio),
        InodeCount::PerBytes(ratio) => by_ratio(ratio),
        InodeCount::Count(count) => count,
    };
    if u64::from(inodes) * u64::from(options.inode_size) >= bytes {
        return Err(MkfsError::TooManyInodes { inodes: inodes.into() });
    }
    Ok(inodes.max(FIRST_INO + 1))
}

// The superblock of a new file system, without the fields that depend on the layout.

const HASH_HALF_MD4: u8 = 1;
const CHECKSUM_CRC32C: u8 = 1;
/// Unicode 12.1 in UTF-8, the only encoding of names.
const ENCODING_UTF8_12_1: u16 = 1;
/// The flag in `s_encoding_flags` that requires names to be valid.
const STRICT_ENCODING: u16 = 1;

impl Numbers {
    /// Returns the superblock without the fields that depend on the layout.
    pub(crate) fn raw_superblock(&self, options: &MkfsOptions) -> RawSuperblock {
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
