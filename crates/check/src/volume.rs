//! The image: its superblock, and functions that read its blocks.

use lanefs_device::{Device, DeviceError};
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::checksum::Checksums;
use lanefs_ondisk::dirent::DirFormat;
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::inode::InodeFlags;
use lanefs_ondisk::superblock::{Geometry, RawSuperblock, Superblock};
use lanefs_ondisk::{Block, Ino};
use std::ops::Range;
use std::sync::Arc;

/// An image, as its superblock describes it.
pub struct Volume {
    device: Arc<dyn Device>,
    superblock: Superblock,
    /// Sizes and positions.
    pub geometry: Geometry,
    /// The checksums of metadata.
    pub checksums: Checksums,
}

impl Volume {
    pub fn new(device: Arc<dyn Device>, superblock: Superblock) -> Volume {
        let (geometry, checksums) = (superblock.geometry(), superblock.checksums());
        Volume { device, superblock, geometry, checksums }
    }

    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub fn raw(&self) -> &RawSuperblock {
        self.superblock.raw()
    }

    pub fn compat(&self, feature: Compat) -> bool {
        self.geometry.features().compat.contains(feature)
    }

    pub fn incompat(&self, feature: Incompat) -> bool {
        self.geometry.features().incompat.contains(feature)
    }

    pub fn ro_compat(&self, feature: RoCompat) -> bool {
        self.geometry.features().ro_compat.contains(feature)
    }

    /// Returns the size of a block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.geometry.block_size().bytes()
    }

    /// Reads whole blocks from `start` into `bytes`.
    pub fn read(&self, start: Block, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(start.0 << self.geometry.block_size().bits(), bytes)
    }

    /// Reads one block.
    pub fn read_block(&self, block: Block) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.block_bytes()];
        self.read(block, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the clusters that a run of blocks touches. Clusters are numbered from the first data
    /// block on; without `bigalloc`, a cluster is a block.
    pub fn clusters(&self, start: Block, len: u64) -> Range<u64> {
        let bits = self.geometry.cluster_bits();
        let from = start.0.saturating_sub(self.geometry.first_data_block().0);
        let to = from.saturating_add(len.max(1)) - 1;
        from >> bits..(to >> bits) + 1
    }

    /// Returns whether a file can use `block`: it is in a group, and it is not block 0.
    pub fn is_for_files(&self, block: Block) -> bool {
        self.geometry.contains(block) && block.0 > 0
    }

    /// Returns the format of directory blocks, for a directory without encrypted names.
    pub fn dir_format(&self) -> DirFormat {
        self.superblock.dir_format(InodeFlags::empty())
    }

    /// Returns how a directory with these flags compares names.
    pub fn folding_of(&self, flags: InodeFlags) -> Folding {
        let folds = flags.contains(InodeFlags::CASEFOLD) && !flags.contains(InodeFlags::ENCRYPT);
        self.superblock.folding().filter(|_| folds).unwrap_or_default()
    }

    /// Returns whether the inode is a quota file that is recorded in the superblock.
    pub fn is_quota_file(&self, ino: Ino) -> bool {
        self.superblock.quota_files().contains(&Some(ino))
    }

    /// Returns whether the superblock names the inode as a quota file although the feature `quota`
    /// is missing.
    pub fn is_unused_quota_file(&self, ino: Ino) -> bool {
        let raw = self.raw();
        let named = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
        !self.ro_compat(RoCompat::QUOTA) && named.iter().any(|named| named.get() == ino.0)
    }

    /// Returns whether the inode may be in use without a name, because it is reserved or the
    /// superblock refers to it.
    pub fn is_hidden(&self, ino: Ino) -> bool {
        (ino != Ino::ROOT && ino < self.geometry.first_ino())
            || self.is_quota_file(ino)
            || self.superblock.orphan_file() == Some(ino)
            || (self.compat(Compat::HAS_JOURNAL) && self.raw().s_journal_inum.get() == ino.0)
    }
}
