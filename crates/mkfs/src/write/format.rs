//! The format of the blocks and inodes of files, and the writer of blocks.

use crate::numbers::Numbers;
use crate::options::{Contents, MkfsOptions, OnLoss};
use crate::report::MkfsError;
use lanefs_device::Device;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::checksum::{Checksums, Seed};
use lanefs_ondisk::dirent::{DirFormat, NameForm};
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::hash::{HashVersion, NameBytes, NameHasher};
use lanefs_ondisk::superblock::Clusters;
use lanefs_ondisk::{BlockSize, Ino};

/// The format of the blocks and inodes of files.
pub(crate) struct Format {
    pub(crate) block_size: BlockSize,
    pub(crate) clusters: Clusters,
    pub(crate) directories: DirFormat,
    pub(crate) hasher: NameHasher,
    pub(crate) checksums: Checksums,
    /// Number of bytes that an inode uses for fields after the first 128 bytes.
    pub(crate) extra_isize: u16,
    /// Bytes of an inode that are available for attributes.
    pub(crate) attribute_room: usize,
    pub(crate) has_extents: bool,
    /// Whether directories of more than one block have an index.
    pub(crate) has_indexes: bool,
    /// Whether a directory can have more subdirectories than a link count can express.
    pub(crate) has_many_subdirectories: bool,
    pub(crate) on_loss: OnLoss,
    has_orphan_file: bool,
}

impl Format {
    pub(crate) fn new(numbers: &Numbers, options: &MkfsOptions) -> Format {
        let features = numbers.features;
        let has_checksums = features.ro_compat.contains(RoCompat::METADATA_CSUM);
        let seed = options.hash_seed.unwrap_or_default();
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(seed.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        let uuid = options.uuid.unwrap_or_default();
        let extra_isize = if options.inode_size > 128 { 32 } else { 0 };
        Format {
            block_size: numbers.block_size,
            clusters: numbers.clusters,
            directories: DirFormat {
                block_size: numbers.block_size,
                has_file_types: features.incompat.contains(Incompat::FILETYPE),
                has_checksums,
                has_large_dirs: features.incompat.contains(Incompat::LARGE_DIR),
                inodes: u32::MAX,
                names: NameForm::Plain,
            },
            // These properties of the hash must be those that `raw_superblock` records.
            hasher: NameHasher {
                folding: Folding::None,
                version: HashVersion::HalfMd4,
                bytes: NameBytes::Signed,
                seed: words,
            },
            checksums: match has_checksums {
                true => Checksums::All { seed: Seed::of_uuid(&uuid) },
                false => Checksums::None,
            },
            extra_isize,
            attribute_room: usize::from(options.inode_size - 128 - extra_isize),
            has_extents: features.incompat.contains(Incompat::EXTENTS),
            has_indexes: features.compat.contains(Compat::DIR_INDEX),
            has_many_subdirectories: features.ro_compat.contains(RoCompat::DIR_NLINK),
            on_loss: options.on_loss,
            has_orphan_file: features.compat.contains(Compat::ORPHAN_FILE),
        }
    }

    /// Returns whether the inode after `lost+found` is the orphan file.
    pub(crate) fn has_orphan_file(&self) -> bool {
        self.has_orphan_file
    }

    /// Returns the checksum seed for an inode's blocks, if the blocks have checksums.
    pub(crate) fn seed_of(&self, ino: Ino) -> Option<Seed> {
        self.checksums.seed().map(|seed| seed.of_inode(ino, 0))
    }
}

/// How many bytes are wiped at the start of the device, where other formats have marks. The mark of
/// btrfs is just after 64 KiB.
const HEAD: u64 = 128 << 10;
/// How many bytes are wiped at the end of the device. The farthest mark is that of md 0.90, at most
/// 128 KiB before the end.
const TAIL: u64 = 128 << 10;
/// The largest number of bytes that wait to be written together with the next block.
const MOST_WAITING: usize = 1 << 20;

/// Writes whole blocks; adjacent blocks that are passed one after another are written together.
pub(crate) struct BlockWriter<'d> {
    device: &'d dyn Device,
    block_size: BlockSize,
    contents: Contents,
    written: u64,
    /// Bytes that are not on the device yet, from block `start` on.
    waiting: Vec<u8>,
    start: u64,
}

impl<'d> BlockWriter<'d> {
    pub(crate) fn new(
        device: &'d dyn Device,
        block_size: BlockSize,
        contents: Contents,
    ) -> BlockWriter<'d> {
        BlockWriter { device, block_size, contents, written: 0, waiting: Vec::new(), start: 0 }
    }

    /// Returns how many bytes were written, including zeros.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Adds `bytes` to the number of written bytes, for data that was written without this writer.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Writes one block.
    pub(crate) fn write(&mut self, block: u64, bytes: &[u8]) -> Result<(), MkfsError> {
        debug_assert_eq!(bytes.len(), self.block_size.bytes());
        let next = self.start + (self.waiting.len() as u64 >> self.block_size.bits());
        if block != next || self.waiting.len() >= MOST_WAITING {
            self.send()?;
            self.start = block;
        }
        self.waiting.extend_from_slice(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes the waiting bytes.
    fn send(&mut self) -> Result<(), MkfsError> {
        if !self.waiting.is_empty() {
            self.device.write_at(self.start << self.block_size.bits(), &self.waiting)?;
            self.start += self.waiting.len() as u64 >> self.block_size.bits();
            self.waiting.clear();
        }
        Ok(())
    }

    /// Makes everything durable.
    pub(crate) fn flush(&mut self) -> Result<(), MkfsError> {
        self.send()?;
        Ok(self.device.flush()?)
    }

    /// Zeroes blocks, unless the device contains only zeros.
    pub(crate) fn zero(&mut self, block: u64, len: u64) -> Result<(), MkfsError> {
        if self.contents == Contents::Unknown {
            self.send()?;
            let bits = self.block_size.bits();
            self.device.write_zeros(block << bits, len << bits)?;
            self.written += len << bits;
        }
        Ok(())
    }

    /// Wipes the marks of other formats, and those of an older ext4.
    pub(crate) fn wipe_signatures(&mut self) -> Result<(), MkfsError> {
        if self.contents == Contents::Zeros {
            return Ok(());
        }
        let len = self.device.len();
        self.device.write_zeros(0, HEAD.min(len))?;
        let alignment = u64::from(self.device.alignment());
        let tail = TAIL.min(len) / alignment * alignment;
        self.device.write_zeros(len / alignment * alignment - tail, tail)?;
        Ok(())
    }
}
