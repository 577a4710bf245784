//! The options of creating a file system.

use super::MkfsError;
use lanefs_ondisk::BlockSize;
use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat};
use uuid::Uuid;

/// The number of inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InodeCount {
    /// Chosen by size: one inode per 16 KiB; per 4 KiB under 512 MiB, per 8 KiB under 3 MiB, per 32
    /// KiB from 4 TiB, per 64 KiB from 16 TiB.
    #[default]
    BySize,
    /// One inode per given number of bytes, from 1 KiB to 64 MiB.
    PerBytes(u32),
    /// This number of inodes, rounded up to fill the inode tables.
    Count(u32),
}

/// The size of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JournalSize {
    /// Chosen by size; no journal under 2,048 blocks.
    #[default]
    BySize,
    /// This many blocks, from 1,024 to 10,240,000 and at most half of the file system.
    Blocks(u32),
    /// No journal, and so no orphan file either.
    None,
}

/// When inode tables are zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InodeTables {
    /// In the background, after the first mount for writing.
    #[default]
    Lazy,
    /// Immediately.
    Zeroed,
}

/// The present contents of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contents {
    /// Unknown data.
    #[default]
    Unknown,
    /// Zeros: a new sparse file, or a device after a discard that zeroes. No further zeros are
    /// written.
    Zeros,
}

/// The size of a file system that is created together with its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Chosen by the options before any file is known, with the layout of mke2fs.
    Given,
    /// Chosen when all files are known, so that they fit and the given space stays free. Tables and
    /// journal follow the data.
    Fitted(Spare),
}

/// The space that stays free in a file system of fitted size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spare {
    /// Number of free bytes.
    pub bytes: u64,
    /// Percentage of the used space.
    pub percent: u32,
}

/// The values that distinguish a new file system from others with the same contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The UUID.
    pub uuid: [u8; 16],
    /// Seed of the directory hashes.
    pub hash_seed: [u8; 16],
    /// Seconds since 1970 for all times of the superblock.
    pub time: u64,
}

/// Options of [`super::mkfs`]. The defaults are those of `mke2fs -t ext4`.
#[derive(Debug, Clone)]
pub struct MkfsOptions {
    /// Size in bytes; `None` uses the whole device.
    pub size: Option<u64>,
    /// Block size: 1, 2 or 4 KiB; `None` chooses 1 KiB under 512 MiB, otherwise 4 KiB.
    pub block_size: Option<BlockSize>,
    /// Number of inodes.
    pub inodes: InodeCount,
    /// Inode size in bytes: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// The label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The UUID; random if `None`.
    pub uuid: Option<[u8; 16]>,
    /// Seed of the directory hashes; random if `None`.
    pub hash_seed: Option<[u8; 16]>,
    /// Size of the journal.
    pub journal: JournalSize,
    /// Percentage of the blocks that only root may take, from 0 to 50.
    pub reserved_percent: f64,
    /// Seconds since 1970 for all times; now if `None`.
    pub time: Option<u64>,
    /// Default features to omit: any of `resize_inode`, `orphan_file`, `64bit`, `flex_bg`,
    /// `metadata_csum_seed` and `metadata_csum`.
    pub without: Features,
    /// When inode tables are zeroed. Without `metadata_csum` always immediately.
    pub inode_tables: InodeTables,
    /// The present contents of the device.
    pub contents: Contents,
    /// Blocks per disk of the underlying RAID, or 0; a hint for allocation.
    pub stride: u16,
    /// Data blocks of a whole stripe of the underlying RAID, or 0; a hint for allocation.
    pub stripe_width: u32,
    /// User and group of the root directory.
    pub root_owner: (u32, u32),
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            size: None,
            block_size: None,
            inodes: InodeCount::BySize,
            inode_size: 256,
            label: Vec::new(),
            uuid: None,
            hash_seed: None,
            journal: JournalSize::BySize,
            reserved_percent: 5.0,
            time: None,
            without: Features::default(),
            inode_tables: InodeTables::Lazy,
            contents: Contents::Unknown,
            stride: 0,
            stripe_width: 0,
            root_owner: (0, 0),
        }
    }
}

impl MkfsOptions {
    /// Returns the default features that Debian 12 omits, for images that older tools read.
    pub fn debian_12() -> Features {
        Features {
            compat: Compat::ORPHAN_FILE,
            incompat: Incompat::CSUM_SEED,
            ro_compat: RoCompat::empty(),
        }
    }

    /// Returns these options with UUID, hash seed and time, chosen now where they are missing.
    pub(super) fn identified(&self) -> MkfsOptions {
        let identity = self.identity();
        MkfsOptions {
            uuid: Some(identity.uuid),
            hash_seed: Some(identity.hash_seed),
            time: Some(identity.time),
            ..self.clone()
        }
    }

    /// Returns the identity of the new file system; values that are not given are random, or the
    /// present time.
    pub fn identity(&self) -> Identity {
        let random = || *Uuid::new_v4().as_bytes();
        let now = || {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(0, |since| since.as_secs())
        };
        Identity {
            uuid: self.uuid.unwrap_or_else(random),
            hash_seed: self.hash_seed.unwrap_or_else(random),
            time: self.time.unwrap_or_else(now),
        }
    }

    pub(super) fn check(&self) -> Result<(), MkfsError> {
        let allowed = Features {
            compat: Compat::RESIZE_INODE | Compat::ORPHAN_FILE,
            incompat: Incompat::BIT64 | Incompat::FLEX_BG | Incompat::CSUM_SEED,
            ro_compat: RoCompat::METADATA_CSUM,
        };
        let without = self.without;
        let block_size = self.block_size.map_or(1024..=4096, |size| {
            let bytes = size.bytes();
            bytes..=bytes
        });
        let ranges = [
            (*block_size.end() <= 4096, "block size"),
            (self.label.len() <= 16, "label"),
            ((0.0..=50.0).contains(&self.reserved_percent), "reserved percentage"),
            (
                self.inode_size.is_power_of_two()
                    && (128..=*block_size.start()).contains(&usize::from(self.inode_size)),
                "inode size",
            ),
            (
                match self.inodes {
                    InodeCount::BySize => true,
                    InodeCount::PerBytes(bytes) => (1 << 10..=64 << 20).contains(&bytes),
                    InodeCount::Count(count) => count > 0,
                },
                "inode count",
            ),
            (
                allowed.compat.contains(without.compat)
                    && allowed.incompat.contains(without.incompat)
                    && allowed.ro_compat.contains(without.ro_compat),
                "features to leave out",
            ),
        ];
        match ranges.into_iter().find(|(right, _)| !right) {
            Some((_, option)) => Err(MkfsError::Option { option }),
            None => Ok(()),
        }
    }
}
