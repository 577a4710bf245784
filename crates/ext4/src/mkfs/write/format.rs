//! The properties of a file system that determine the contents of its files' blocks and inodes. The
//! layout of groups is not among them.

use crate::mkfs::numbers::Numbers;
use crate::mkfs::{MkfsOptions, OnLoss};
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::checksum::{Checksums, Seed};
use lanefs_ondisk::dirent::{DirFormat, NameForm};
use lanefs_ondisk::features::{Compat, Incompat, RoCompat};
use lanefs_ondisk::hash::{HashVersion, NameBytes, NameHasher};
use lanefs_ondisk::superblock::Clusters;
use lanefs_ondisk::{BlockSize, Ino};

/// The format of the blocks and inodes of files.
pub(crate) struct Format {
    pub(super) block_size: BlockSize,
    pub(super) clusters: Clusters,
    pub(super) directories: DirFormat,
    pub(super) hasher: NameHasher,
    pub(super) checksums: Checksums,
    /// Number of bytes that an inode uses for fields after the first 128 bytes.
    pub(super) extra_isize: u16,
    /// Bytes of an inode that are available for attributes.
    pub(super) attribute_room: usize,
    pub(super) has_extents: bool,
    /// Whether directories of more than one block have an index.
    pub(super) has_indexes: bool,
    /// Whether a directory can have more subdirectories than a link count can express.
    pub(super) has_many_subdirectories: bool,
    pub(super) on_loss: OnLoss,
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
    pub(super) fn seed_of(&self, ino: Ino) -> Option<Seed> {
        self.checksums.seed().map(|seed| seed.of_inode(ino, 0))
    }
}
