//! The superblock of a device that contains only a log (`journal_dev`).
//!
//! The device has a superblock at the same offset as a file system, but only a few of its fields
//! are in use. The journal superblock is in the block after this superblock, and the log in the
//! blocks after the journal superblock.
//!
//! Source: ext4 disk layout documentation, "External Journal".

use super::check;
use super::raw::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::cause::superblock::Cause;
use crate::error::Corruption;
use crate::features::Incompat;
use crate::types::{Block, BlockSize};
use zerocopy::{FromBytes, IntoBytes};

/// The largest number of blocks per group that mke2fs stores in a superblock. mke2fs also sets this
/// field for a journal device, which has no groups.
const MOST_PER_GROUP: u32 = 65528;
const VALID: u16 = 1;
const ERRORS_CONTINUE: u16 = 1;
/// The revision that has feature words, and the values of two fields that programs expect in this
/// revision.
const DYNAMIC: u32 = 1;
const FIRST_INO: u32 = 11;
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
        let (raw, _) = RawSuperblock::read_from_prefix(bytes)
            .map_err(|_| wrong(Cause::Length { len: bytes.len() }))?;
        check::magic_and_checksum(&raw).map_err(wrong)?;
        let features = check::features(&raw);
        if !features.incompat.contains(Incompat::JOURNAL_DEV) {
            return Err(wrong(Cause::NotAJournalDevice));
        }
        let block_size = check::block_size(&raw).map_err(wrong)?;
        let (low, high) = (raw.s_blocks_count_lo.get(), raw.s_blocks_count_hi.get());
        let blocks = check::wide(features, low, high);
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
        raw.s_magic.set(check::MAGIC);
        raw.s_state.set(VALID);
        raw.s_errors.set(ERRORS_CONTINUE);
        raw.s_rev_level.set(DYNAMIC);
        raw.s_first_ino.set(FIRST_INO);
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
