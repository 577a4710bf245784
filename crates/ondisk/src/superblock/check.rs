//! Makes every check of a superblock. A superblock that passes needs no further check.
//! [`JournalDevice`] is the superblock of a device that has no file system.

use crate::cause::SuperblockCause as Cause;
use crate::checksum::Seed;
use crate::error::Corruption;
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::superblock::Geometry;
use crate::superblock::raw::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::types::{Block, BlockSize};
use zerocopy::{FromBytes, IntoBytes};

pub(super) const MAGIC: u16 = 0xef53;
const GOOD_OLD_REVISION: u32 = 0;
const DYNAMIC_REVISION: u32 = 1;
const GOOD_OLD_INODE_SIZE: u16 = 128;
const GOOD_OLD_FIRST_INO: u32 = 11;
const CHECKSUM_CRC32C: u8 = 1;
/// Extents have 48-bit block numbers.
const MAX_BLOCKS: u64 = 1 << 48;

pub(super) fn features(raw: &RawSuperblock) -> Features {
    Features {
        compat: Compat::from_bits_retain(raw.s_feature_compat.get()),
        incompat: Incompat::from_bits_retain(raw.s_feature_incompat.get()),
        ro_compat: RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()),
    }
}

/// Reads a superblock, and checks its length and magic.
pub(super) fn unsummed(bytes: &[u8]) -> Result<RawSuperblock, Cause> {
    let length = Cause::Length { len: bytes.len() };
    let (raw, _) = RawSuperblock::read_from_prefix(bytes).map_err(|_| length)?;
    match raw.s_magic.get() {
        MAGIC => Ok(raw),
        found => Err(Cause::Magic { found }),
    }
}

/// Reads a superblock, and checks its length, magic and checksum.
pub(super) fn raw(bytes: &[u8]) -> Result<RawSuperblock, Cause> {
    let raw = unsummed(bytes)?;
    if features(&raw).ro_compat.contains(RoCompat::METADATA_CSUM) {
        let (found, expected) = (raw.s_checksum.get(), checksum(&raw));
        if found != expected {
            return Err(Cause::Checksum { found, expected });
        }
    }
    Ok(raw)
}

/// Computes the checksum over all bytes before the checksum field. The seed is always all ones.
pub(super) fn checksum(raw: &RawSuperblock) -> u32 {
    let bytes = raw.as_bytes();
    Seed::START.chain(&bytes[..bytes.len() - 4]).value()
}

/// Joins the halves of a count. The upper half is in use only with `64bit`.
pub(super) fn wide(features: Features, lo: u32, hi: u32) -> u64 {
    let hi = if features.incompat.contains(Incompat::BIT64) { hi } else { 0 };
    u64::from(hi) << 32 | u64::from(lo)
}

/// Checks everything except magic and checksum.
pub(super) fn geometry(raw: &RawSuperblock) -> Result<Geometry, Cause> {
    let features = features(raw);
    let block_size = block_size(raw)?;
    let cluster_bits = cluster_bits(raw, features)?;
    let inode_size = inode_size(raw, block_size)?;
    let first_ino = first_ino(raw)?;
    let desc_size = desc_size(raw, features)?;
    let (blocks_per_group, inodes_per_group) =
        per_group(raw, block_size, inode_size, cluster_bits)?;
    let first_data_block = first_data_block(raw, block_size, cluster_bits)?;
    let block_count = wide(features, raw.s_blocks_count_lo.get(), raw.s_blocks_count_hi.get());
    if block_count <= first_data_block.into() || block_count > MAX_BLOCKS {
        return Err(Cause::BlockCount { blocks: block_count });
    }
    let group_count = (block_count - u64::from(first_data_block)).div_ceil(blocks_per_group.into());
    let group_count =
        u32::try_from(group_count).map_err(|_| Cause::BlockCount { blocks: block_count })?;
    let inode_count = raw.s_inodes_count.get();
    if u64::from(group_count) * u64::from(inodes_per_group) != u64::from(inode_count) {
        return Err(Cause::InodeCount { inodes: inode_count, groups: group_count });
    }
    if first_ino > inode_count {
        return Err(Cause::FirstInode { ino: first_ino });
    }
    let geometry = Geometry {
        block_size,
        block_count,
        first_data_block,
        group_count,
        blocks_per_group,
        cluster_bits,
        inodes_per_group,
        inode_count,
        inode_size,
        first_ino,
        desc_size,
        reserved_gdt_blocks: raw.s_reserved_gdt_blocks.get(),
        first_meta_bg: raw.s_first_meta_bg.get(),
        backup_groups: raw.s_backup_bgs.map(|g| g.get()),
        flex_size: flex_size(raw, features)?,
        features,
    };
    descriptors(raw, &geometry)?;
    counts(raw, &geometry)?;
    special_inodes(raw, &geometry)?;
    if features.ro_compat.contains(RoCompat::METADATA_CSUM)
        && raw.s_checksum_type != CHECKSUM_CRC32C
    {
        return Err(Cause::ChecksumType { found: raw.s_checksum_type });
    }
    Ok(geometry)
}

fn block_size(raw: &RawSuperblock) -> Result<BlockSize, Cause> {
    let log = raw.s_log_block_size.get();
    let bytes = if log <= 6 { 1024 << log } else { 0 };
    BlockSize::new(bytes).ok_or(Cause::BlockSize { log })
}

/// Checks the cluster size. Without `bigalloc` the field is the fragment size, which must equal the
/// block size.
fn cluster_bits(raw: &RawSuperblock, features: Features) -> Result<u32, Cause> {
    let (cluster, block) = (raw.s_log_cluster_size.get(), raw.s_log_block_size.get());
    let cause = Cause::ClusterSize { log: cluster };
    let bits = cluster.checked_sub(block).ok_or(cause.clone())?;
    let right =
        if features.ro_compat.contains(RoCompat::BIGALLOC) { bits <= 16 } else { bits == 0 };
    right.then_some(bits).ok_or(cause)
}

fn inode_size(raw: &RawSuperblock, block_size: BlockSize) -> Result<u16, Cause> {
    let size = match raw.s_rev_level.get() {
        GOOD_OLD_REVISION => return Ok(GOOD_OLD_INODE_SIZE),
        DYNAMIC_REVISION => raw.s_inode_size.get(),
        found => return Err(Cause::Revision { found }),
    };
    let right = size.is_power_of_two()
        && size >= GOOD_OLD_INODE_SIZE
        && usize::from(size) <= block_size.bytes();
    right.then_some(size).ok_or(Cause::InodeSize { size })
}

fn first_ino(raw: &RawSuperblock) -> Result<u32, Cause> {
    if raw.s_rev_level.get() == GOOD_OLD_REVISION {
        return Ok(GOOD_OLD_FIRST_INO);
    }
    let ino = raw.s_first_ino.get();
    (ino >= GOOD_OLD_FIRST_INO).then_some(ino).ok_or(Cause::FirstInode { ino })
}

/// Checks the descriptor size. Without `64bit` the field has no meaning.
fn desc_size(raw: &RawSuperblock, features: Features) -> Result<u16, Cause> {
    if !features.incompat.contains(Incompat::BIT64) {
        return Ok(32);
    }
    let size = raw.s_desc_size.get();
    let right = size.is_power_of_two() && (64..=1024).contains(&size);
    right.then_some(size).ok_or(Cause::DescSize { size })
}

fn per_group(
    raw: &RawSuperblock,
    block_size: BlockSize,
    inode_size: u16,
    cluster_bits: u32,
) -> Result<(u32, u32), Cause> {
    let (clusters, blocks) = (raw.s_clusters_per_group.get(), raw.s_blocks_per_group.get());
    let right = clusters > 0
        && clusters <= block_size.most_blocks_per_group()
        && clusters.is_multiple_of(8)
        && u64::from(clusters) << cluster_bits == u64::from(blocks);
    if !right {
        return Err(Cause::BlocksPerGroup { blocks, clusters });
    }
    let inodes = raw.s_inodes_per_group.get();
    let per_block = block_size.bytes() as u32 / u32::from(inode_size);
    let most = block_size.most_inodes_per_group(per_block);
    if inodes < per_block || inodes > most {
        return Err(Cause::InodesPerGroup { inodes });
    }
    Ok((blocks, inodes))
}

/// Checks the first data block, which is block 0 unless blocks have 1 KiB. With 1 KiB blocks, block
/// 0 is the boot block and group 0 starts at block 1. But if clusters are larger than blocks, group
/// 0 starts at block 0 even with 1 KiB blocks.
fn first_data_block(
    raw: &RawSuperblock,
    block_size: BlockSize,
    cluster_bits: u32,
) -> Result<u32, Cause> {
    let block = raw.s_first_data_block.get();
    let right = u32::from(block_size.bytes() == 1024 && cluster_bits == 0);
    (block == right).then_some(block).ok_or(Cause::FirstDataBlock { block })
}

/// Returns the number of groups in a flexible group. Without the feature `flex_bg` it is 1, because
/// then `s_log_groups_per_flex` has no meaning. It is also 1 if the field is 0, as in the kernel
/// (6.18).
fn flex_size(raw: &RawSuperblock, features: Features) -> Result<u32, Cause> {
    if !features.incompat.contains(Incompat::FLEX_BG) {
        return Ok(1);
    }
    let log = raw.s_log_groups_per_flex;
    1u32.checked_shl(log.into()).ok_or(Cause::FlexSize { log })
}

fn descriptors(raw: &RawSuperblock, geometry: &Geometry) -> Result<(), Cause> {
    let reserved = raw.s_reserved_gdt_blocks.get();
    if usize::from(reserved) > geometry.block_size.bytes() / 4 {
        return Err(Cause::ReservedDescriptors { blocks: reserved });
    }
    let meta_bg = geometry.features.incompat.contains(Incompat::META_BG);
    let first = raw.s_first_meta_bg.get();
    if meta_bg && first > geometry.desc_blocks() {
        return Err(Cause::FirstMetaGroup { first });
    }
    if geometry.primary_metadata().end > geometry.block_count {
        return Err(Cause::BlockCount { blocks: geometry.block_count });
    }
    Ok(())
}

fn counts(raw: &RawSuperblock, geometry: &Geometry) -> Result<(), Cause> {
    let features = geometry.features;
    let free = wide(features, raw.s_free_blocks_count_lo.get(), raw.s_free_blocks_count_hi.get());
    if free > geometry.block_count {
        return Err(Cause::FreeBlocks { blocks: free });
    }
    let reserved = wide(features, raw.s_r_blocks_count_lo.get(), raw.s_r_blocks_count_hi.get());
    if reserved > geometry.block_count {
        return Err(Cause::ReservedBlocks { blocks: reserved });
    }
    let inodes = raw.s_free_inodes_count.get();
    if inodes > geometry.inode_count {
        return Err(Cause::FreeInodes { inodes });
    }
    Ok(())
}

fn special_inodes(raw: &RawSuperblock, geometry: &Geometry) -> Result<(), Cause> {
    let compat = geometry.features.compat;
    let exists = |ino: u32| ino != 0 && ino <= geometry.inode_count;
    if compat.contains(Compat::HAS_JOURNAL) {
        let (ino, device) = (raw.s_journal_inum.get(), raw.s_journal_dev.get());
        // The journal is either an inode or a device. A device is identified by its UUID; its
        // number is only a hint, and is 0 for an image file.
        let names_device = device != 0 || raw.s_journal_uuid != [0; 16];
        if (ino == 0 && !names_device) || (ino != 0 && (device != 0 || !exists(ino))) {
            return Err(Cause::JournalPlace { ino, device });
        }
    }
    let ino = raw.s_orphan_file_inum.get();
    if compat.contains(Compat::ORPHAN_FILE) && !exists(ino) {
        return Err(Cause::OrphanFileInode { ino });
    }
    let ino = raw.s_last_orphan.get();
    if ino > geometry.inode_count {
        return Err(Cause::LastOrphan { ino });
    }
    Ok(())
}

// The superblock of a device that contains only a log (`journal_dev`).
//
// The device has a superblock at the same offset as a file system, but only a few of its fields
// are in use. The journal superblock is in the block after this superblock, and the log in the
// blocks after the journal superblock.
//
// Source: ext4 disk layout documentation, "External Journal".

/// The largest number of blocks per group that mke2fs stores in a superblock. mke2fs also sets this
/// field for a journal device, which has no groups.
const MOST_PER_GROUP: u32 = 65528;
const VALID: u16 = 1;
const ERRORS_CONTINUE: u16 = 1;
/// The size of inodes that programs expect here, although there are none.
const INODE_SIZE: u16 = 256;

/// The checked superblock of a journal device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalDevice {
    /// The UUID by which file systems refer to the device.
    pub uuid: [u8; 16],
    /// The block size.
    pub block_size: BlockSize,
    /// The number of blocks.
    pub blocks: u64,
}

impl JournalDevice {
    /// Decodes the superblock of a journal device. `bytes` begins at [`SUPERBLOCK_OFFSET`] of the
    /// device, and is at least 1024 bytes long.
    ///
    /// # Errors
    /// [`Corruption::Superblock`], with [`Cause::NotAJournalDevice`] for a file system.
    pub fn decode(bytes: &[u8]) -> Result<JournalDevice, Corruption> {
        let wrong = |cause| Corruption::Superblock { cause };
        let raw = raw(bytes).map_err(wrong)?;
        let features = features(&raw);
        if !features.incompat.contains(Incompat::JOURNAL_DEV) {
            return Err(wrong(Cause::NotAJournalDevice));
        }
        let block_size = block_size(&raw).map_err(wrong)?;
        let (low, high) = (raw.s_blocks_count_lo.get(), raw.s_blocks_count_hi.get());
        let blocks = wide(features, low, high);
        Ok(JournalDevice { uuid: raw.s_uuid, block_size, blocks })
    }

    /// Returns the bytes of the superblock of a new device, with the fields that mke2fs sets.
    /// `time` is in seconds since 1970. A device of 2^32 blocks or more is an error of the caller.
    pub fn encode(&self, time: u32) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = RawSuperblock::zeroed();
        raw.s_blocks_count_lo.set(self.blocks as u32);
        raw.s_first_data_block.set(u32::from(self.block_size.bits() == 10));
        raw.s_log_block_size.set(self.block_size.bits() - 10);
        raw.s_log_cluster_size.set(self.block_size.bits() - 10);
        let per_group = (self.block_size.bytes() as u32 * 8).min(MOST_PER_GROUP);
        raw.s_blocks_per_group.set(per_group);
        raw.s_clusters_per_group.set(per_group);
        raw.s_wtime.set(time);
        raw.s_lastcheck.set(time);
        raw.s_mkfs_time.set(time);
        raw.s_max_mnt_count.set(u16::MAX);
        raw.s_magic.set(MAGIC);
        raw.s_state.set(VALID);
        raw.s_errors.set(ERRORS_CONTINUE);
        raw.s_rev_level.set(DYNAMIC_REVISION);
        raw.s_first_ino.set(GOOD_OLD_FIRST_INO);
        raw.s_inode_size.set(INODE_SIZE);
        raw.s_feature_incompat.set(Incompat::JOURNAL_DEV.bits());
        raw.s_uuid = self.uuid;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Returns the block of the journal superblock.
    pub fn journal_superblock(&self) -> Block {
        Block((SUPERBLOCK_OFFSET >> self.block_size.bits()) + 1)
    }
}
