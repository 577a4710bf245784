//! Chooses sizes and counts as mke2fs does for the same device and options.

use super::{InodeCount, JournalSize, MkfsError, MkfsOptions, journal};
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::checksum::Seed;
use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat};
use lanefs_ondisk::superblock::{DefaultMountOptions, RawSuperblock, State, SuperFlags};
use zerocopy::little_endian::U32;

/// Number of groups whose bitmaps and tables are placed together, as a power of two.
const LOG_GROUPS_PER_FLEX: u8 = 4;
/// Free blocks that the last, shorter group must have to be kept.
const MIN_LAST_GROUP: u64 = 50;
/// The smallest size; below it not even the metadata of one group fits, with any options.
const MIN_BYTES: u64 = 16 << 10;
/// The first inode that is not reserved; mke2fs uses it for `lost+found`.
const FIRST_INO: u32 = 11;
const HASH_HALF_MD4: u8 = 1;
const CHECKSUM_CRC32C: u8 = 1;

/// The numbers of a new file system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) block_size: BlockSize,
    pub(super) blocks: u64,
    pub(super) reserved: u64,
    pub(super) blocks_per_group: u32,
    pub(super) inodes_per_group: u32,
    pub(super) groups: u32,
    pub(super) reserved_gdt: u16,
    pub(super) inode_size: u16,
    pub(super) journal_blocks: u32,
    pub(super) features: Features,
}

/// A usage type of mke2fs.conf: settings for a range of sizes.
struct Usage {
    block_size: u32,
    bytes_per_inode: u32,
}

fn usage(bytes: u64) -> Usage {
    const MIB: u64 = 1 << 20;
    const TYPES: [(u64, u32, u32); 4] = [
        (3 * MIB, 1024, 8192),
        (512 * MIB, 1024, 4096),
        (4 * MIB * MIB, 4096, 16384),
        (16 * MIB * MIB, 4096, 32768),
    ];
    let found = TYPES.into_iter().find(|&(below, ..)| bytes < below);
    let (_, block_size, bytes_per_inode) = found.unwrap_or((u64::MAX, 4096, 65536));
    Usage { block_size, bytes_per_inode }
}

fn default_features() -> Features {
    Features {
        compat: Compat::HAS_JOURNAL
            | Compat::EXT_ATTR
            | Compat::RESIZE_INODE
            | Compat::DIR_INDEX
            | Compat::ORPHAN_FILE,
        incompat: Incompat::FILETYPE
            | Incompat::EXTENTS
            | Incompat::BIT64
            | Incompat::FLEX_BG
            | Incompat::CSUM_SEED,
        ro_compat: RoCompat::SPARSE_SUPER
            | RoCompat::LARGE_FILE
            | RoCompat::HUGE_FILE
            | RoCompat::DIR_NLINK
            | RoCompat::EXTRA_ISIZE
            | RoCompat::METADATA_CSUM,
    }
}

/// Returns the default features without those that the options leave out.
fn features(options: &MkfsOptions) -> Features {
    let mut features = default_features();
    features.compat -= options.without.compat;
    features.incompat -= options.without.incompat;
    features.ro_compat -= options.without.ro_compat;
    if !features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        features.incompat -= Incompat::CSUM_SEED;
    }
    features
}

impl Numbers {
    pub(super) fn choose(options: &MkfsOptions, device: u64) -> Result<Numbers, MkfsError> {
        let bytes = options.size.unwrap_or(device);
        if bytes > device {
            return Err(MkfsError::BeyondDevice { device, wanted: bytes });
        }
        if bytes < MIN_BYTES {
            return Err(MkfsError::TooSmall { bytes });
        }
        let usage = usage(bytes);
        let block_size = options.block_size.or(BlockSize::new(usage.block_size));
        let block_size = block_size.ok_or(MkfsError::Option { option: "block size" })?;
        let blocks = count_blocks(options, bytes, block_size);
        let mut features = features(options);
        // The blocks reserved for growing cannot reach beyond block 2^32.
        if blocks > u64::from(u32::MAX) {
            features.compat -= Compat::RESIZE_INODE;
            if !features.incompat.contains(Incompat::BIT64) {
                return Err(MkfsError::TooLarge { blocks });
            }
        }
        let inodes = count_inodes(options, &usage, blocks, block_size)?;
        let mut numbers = Numbers {
            block_size,
            blocks,
            reserved: (options.reserved_percent * blocks as f64 / 100.0) as u64,
            blocks_per_group: block_size.bytes() as u32 * 8,
            inodes_per_group: 0,
            groups: 0,
            reserved_gdt: 0,
            inode_size: options.inode_size,
            journal_blocks: 0,
            features,
        };
        numbers.divide(blocks, inodes)?;
        numbers.choose_journal(options.journal)?;
        Ok(numbers)
    }

    /// Returns the numbers for exactly these blocks and at least these inodes, with `reserve`
    /// blocks for descriptors and their growth; the journal is chosen later.
    pub(super) fn fitted(
        options: &MkfsOptions,
        block_size: BlockSize,
        blocks: u64,
        inodes: u32,
        reserve: u32,
    ) -> Result<Numbers, MkfsError> {
        let features = features(options);
        if !features.incompat.contains(Incompat::FLEX_BG) {
            return Err(MkfsError::Option { option: "size (without flex_bg it must be given)" });
        }
        let mut numbers = Numbers {
            block_size,
            blocks,
            reserved: (options.reserved_percent * blocks as f64 / 100.0) as u64,
            blocks_per_group: block_size.bytes() as u32 * 8,
            inodes_per_group: 0,
            groups: 0,
            reserved_gdt: 0,
            inode_size: options.inode_size,
            journal_blocks: 0,
            features,
        };
        let in_groups = blocks.saturating_sub(numbers.first_data_block());
        let groups = in_groups.div_ceil(numbers.blocks_per_group.into());
        numbers.groups = u32::try_from(groups).map_err(|_| MkfsError::TooLarge { blocks })?;
        if numbers.groups == 0 {
            return Err(MkfsError::TooSmall { bytes: blocks << block_size.bits() });
        }
        numbers.inodes_per_group = numbers.fill_table(inodes.div_ceil(numbers.groups));
        if numbers.inodes_per_group > numbers.blocks_per_group {
            return Err(MkfsError::TooManyInodes { inodes: inodes.into() });
        }
        let descriptors = numbers.groups.div_ceil(numbers.descs_per_block());
        let growth = reserve.checked_sub(descriptors).ok_or(MkfsError::TooLarge { blocks })?;
        if features.compat.contains(Compat::RESIZE_INODE) {
            numbers.reserved_gdt = growth as u16;
        }
        Ok(numbers)
    }

    /// Divides the blocks into groups and the inodes among them. Makes groups smaller if a bitmap
    /// cannot hold the inodes of one group; drops a last group that is too short.
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
                if self.blocks_per_group < 256 {
                    return Err(MkfsError::TooManyInodes { inodes: inodes.into() });
                }
                self.blocks_per_group -= 8;
                self.blocks = blocks;
                continue;
            }
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

    /// Rounds up the inodes per group so that they fill the table's blocks and whole bytes of the
    /// bitmap.
    fn fill_table(&self, per_group: u32) -> u32 {
        let per_block = self.block_size.bytes() as u32 / u32::from(self.inode_size);
        let mut filled = (per_group.div_ceil(per_block) * per_block).max(8) & !7;
        while u64::from(filled) * u64::from(self.groups) > u32::MAX.into() {
            filled -= 8;
        }
        filled
    }

    fn inodes(&self) -> u32 {
        self.inodes_per_group * self.groups
    }

    /// Reserves blocks after the descriptors for growing to 1,024 times the size, as far as one
    /// block of pointers reaches. If the descriptors themselves would take most of a group, spreads
    /// them over the groups instead.
    fn reserve_descriptors(&mut self) {
        self.reserved_gdt = 0;
        let desc_blocks = self.groups.div_ceil(self.descs_per_block());
        if self.features.compat.contains(Compat::RESIZE_INODE) {
            let most = (self.blocks.saturating_mul(1024)).min(u32::MAX.into());
            let groups = (most - self.first_data_block()).div_ceil(self.blocks_per_group.into());
            let wanted = groups.div_ceil(self.descs_per_block().into()) as u32;
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
        let head = if !has_super(last) {
            0
        } else if self.features.incompat.contains(Incompat::META_BG) {
            2
        } else {
            let descriptors = self.groups.div_ceil(self.descs_per_block());
            1 + descriptors + u32::from(self.reserved_gdt)
        };
        u64::from(2 + table + head)
    }

    fn choose_journal(&mut self, size: JournalSize) -> Result<(), MkfsError> {
        self.journal_blocks = match size {
            JournalSize::None => 0,
            JournalSize::BySize => journal::default_blocks(self.blocks),
            JournalSize::Blocks(blocks) => {
                let most = (self.blocks / 2).min(10_240_000);
                if !(1024..=most).contains(&blocks.into()) {
                    return Err(MkfsError::JournalSize { blocks });
                }
                blocks
            }
        };
        if self.journal_blocks == 0 {
            self.features.compat -= Compat::HAS_JOURNAL | Compat::ORPHAN_FILE;
        }
        Ok(())
    }

    pub(super) fn first_data_block(&self) -> u64 {
        u64::from(self.block_size.bytes() == 1024)
    }

    fn desc_size(&self) -> u16 {
        if self.features.incompat.contains(Incompat::BIT64) { 64 } else { 32 }
    }

    fn descs_per_block(&self) -> u32 {
        self.block_size.bytes() as u32 / u32::from(self.desc_size())
    }

    /// Returns the superblock without the fields that depend on the layout.
    pub(super) fn raw_superblock(&self, options: &MkfsOptions) -> RawSuperblock {
        // The UUID is zero until the file system is identified; the geometry does not depend on it.
        let uuid = options.uuid.unwrap_or_default();
        let time = options.time.unwrap_or_default();
        let (features, low_time, high_time) = (self.features, time as u32, (time >> 32) as u8);
        let mut raw = RawSuperblock::zeroed();
        raw.s_inodes_count.set(self.inodes());
        set_wide(&mut raw.s_blocks_count_lo, &mut raw.s_blocks_count_hi, self.blocks);
        set_wide(&mut raw.s_r_blocks_count_lo, &mut raw.s_r_blocks_count_hi, self.reserved);
        raw.s_first_data_block.set(self.first_data_block() as u32);
        raw.s_log_block_size.set(self.block_size.bits() - 10);
        raw.s_log_cluster_size.set(self.block_size.bits() - 10);
        raw.s_blocks_per_group.set(self.blocks_per_group);
        raw.s_clusters_per_group.set(self.blocks_per_group);
        raw.s_inodes_per_group.set(self.inodes_per_group);
        raw.s_wtime.set(low_time);
        raw.s_lastcheck.set(low_time);
        raw.s_mkfs_time.set(low_time);
        (raw.s_wtime_hi, raw.s_lastcheck_hi, raw.s_mkfs_time_hi) =
            (high_time, high_time, high_time);
        raw.s_max_mnt_count.set(u16::MAX);
        raw.s_state.set(State::VALID.bits());
        raw.s_errors.set(1);
        raw.s_rev_level.set(1);
        raw.s_first_ino.set(FIRST_INO);
        raw.s_inode_size.set(self.inode_size);
        raw.s_feature_compat.set(features.compat.bits());
        raw.s_feature_incompat.set(features.incompat.bits());
        raw.s_feature_ro_compat.set(features.ro_compat.bits());
        raw.s_uuid = uuid;
        raw.s_volume_name[..options.label.len()].copy_from_slice(&options.label);
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
        raw.s_flags.set(SuperFlags::SIGNED_HASH.bits());
        raw.s_raid_stride.set(options.stride);
        raw.s_raid_stripe_width.set(options.stripe_width);
        if features.incompat.contains(Incompat::FLEX_BG) {
            raw.s_log_groups_per_flex = LOG_GROUPS_PER_FLEX;
        }
        if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            raw.s_checksum_type = CHECKSUM_CRC32C;
        }
        if features.incompat.contains(Incompat::CSUM_SEED) {
            raw.s_checksum_seed.set(Seed::of_uuid(&uuid).value());
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

/// The size of a whole device is rounded down to pages of 4 KiB, as in mke2fs.
fn count_blocks(options: &MkfsOptions, bytes: u64, block_size: BlockSize) -> u64 {
    let bytes = if options.size.is_none() { bytes & !4095 } else { bytes };
    bytes >> block_size.bits()
}

fn count_inodes(
    options: &MkfsOptions,
    usage: &Usage,
    blocks: u64,
    block_size: BlockSize,
) -> Result<u32, MkfsError> {
    let bytes = blocks << block_size.bits();
    let by_ratio = |ratio: u32| (bytes / u64::from(ratio)).min(u32::MAX.into()) as u32;
    let inodes = match options.inodes {
        InodeCount::BySize => by_ratio(usage.bytes_per_inode),
        InodeCount::PerBytes(ratio) => by_ratio(ratio),
        InodeCount::Count(count) => count,
    };
    if u64::from(inodes) * u64::from(options.inode_size) >= bytes {
        return Err(MkfsError::TooManyInodes { inodes: inodes.into() });
    }
    Ok(inodes.max(FIRST_INO + 1))
}

/// Computes `sparse_super` like `Geometry::group_has_super`; the geometry does not exist yet.
fn has_super(group: u32) -> bool {
    let is_power = |base: u32| (0..21).any(|n| base.checked_pow(n) == Some(group));
    group == 0 || [3, 5, 7].into_iter().any(is_power)
}

fn set_wide(low: &mut U32, high: &mut U32, value: u64) {
    low.set(value as u32);
    high.set((value >> 32) as u32);
}
