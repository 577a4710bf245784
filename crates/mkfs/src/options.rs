//! The options of creating a file system.

use crate::report::MkfsError;
use lanefs_ondisk::casefold::Folding;
use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat, Support};
use lanefs_ondisk::superblock::{Clusters, OnError};
use lanefs_ondisk::{BlockSize, Time};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::File;
use std::io::Read;

/// Returns a random UUID (version 4), by getrandom(2) itself. Crates that look for this function in
/// the dynamic linker do not find it in a static binary, and then want /dev/urandom.
pub fn random_uuid() -> [u8; 16] {
    let mut bytes = [0; 16];
    let drawn = loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Err(Errno::INTR) => {}
            drawn => break drawn == Ok(bytes.len()),
        }
    };
    // Linux before 3.17 lacks the call, and a filter may forbid it.
    let read = |bytes: &mut [u8]| File::open("/dev/urandom").and_then(|mut f| f.read_exact(bytes));
    if !drawn && read(&mut bytes).is_err() {
        // Unlike the others, these bits could be guessed: they follow from the time.
        bytes = fastrand::u128(..).to_ne_bytes();
    }
    uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes()
}

/// The intended use of a file system, as in `mke2fs -T`. It determines the default block size and
/// the default number of inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Usage {
    /// `Floppy` under 3 MiB, `Small` under 512 MiB, `Big` from 4 TiB, `Huge` from 16 TiB, otherwise
    /// `Default`.
    #[default]
    BySize,
    /// Blocks of 4 KiB, one inode per 16 KiB.
    Default,
    /// Blocks of 1 KiB, one inode per 8 KiB.
    Floppy,
    /// Blocks of 1 KiB, one inode per 4 KiB.
    Small,
    /// Blocks of 4 KiB, one inode per 32 KiB.
    Big,
    /// Blocks of 4 KiB, one inode per 64 KiB.
    Huge,
    /// Blocks of 4 KiB, one inode per 4 KiB.
    News,
    /// Blocks of 4 KiB, one inode per MiB.
    Largefile,
    /// Blocks of 4 KiB, one inode per 4 MiB.
    Largefile4,
}

impl Usage {
    /// Returns the block size and the number of bytes per inode for a size, as in mke2fs.conf.
    pub(crate) fn defaults(self, bytes: u64) -> (u32, u32) {
        const MIB: u64 = 1 << 20;
        match self {
            Usage::BySize if bytes < 3 * MIB => Usage::Floppy.defaults(bytes),
            Usage::BySize if bytes < 512 * MIB => Usage::Small.defaults(bytes),
            Usage::BySize if bytes >= 16 * MIB * MIB => Usage::Huge.defaults(bytes),
            Usage::BySize if bytes >= 4 * MIB * MIB => Usage::Big.defaults(bytes),
            Usage::BySize | Usage::Default => (4096, 16 << 10),
            Usage::Floppy => (1024, 8 << 10),
            Usage::Small => (1024, 4 << 10),
            Usage::Big => (4096, 32 << 10),
            Usage::Huge => (4096, 64 << 10),
            Usage::News => (4096, 4 << 10),
            Usage::Largefile => (4096, 1 << 20),
            Usage::Largefile4 => (4096, 4 << 20),
        }
    }
}

/// Where bitmaps and inode tables are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TablePlaces {
    /// Bitmaps and inode tables are at the start of each flexible group.
    #[default]
    ByGroup,
    /// All metadata is at the start of the file system, followed by the journal.
    AtStart,
}

/// The number of inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InodeCount {
    /// The number of inodes follows from [`Usage`] and the size.
    #[default]
    BySize,
    /// One inode for each piece of this many bytes, from 1 KiB to 64 MiB.
    PerBytes(u32),
    /// This number of inodes, rounded up to fill the inode tables.
    Count(u32),
}

/// The size of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JournalSize {
    /// The size of the file system decides. Under 2,048 blocks there is no journal.
    #[default]
    BySize,
    /// This many blocks, from 1,024 to 10,240,000 and at most half of the file system.
    Blocks(u32),
    /// This many bytes, rounded down to blocks.
    Bytes(u64),
    /// The file system has no journal, and therefore no orphan file.
    None,
}

impl JournalSize {
    /// Returns the same journal size, but with bytes converted to blocks.
    pub(crate) fn in_blocks(self, block_size: BlockSize) -> JournalSize {
        match self {
            JournalSize::Bytes(bytes) => {
                let blocks = u32::try_from(bytes >> block_size.bits());
                JournalSize::Blocks(blocks.unwrap_or(u32::MAX))
            }
            size => size,
        }
    }
}

/// When inode tables are zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InodeTables {
    /// The kernel zeroes the inode tables in the background, after the first mount for writing.
    #[default]
    Lazy,
    /// The inode tables are zeroed immediately.
    Zeroed,
}

/// The present contents of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contents {
    /// The device holds unknown data.
    #[default]
    Unknown,
    /// The device holds only zeros: it is a new sparse file, or a discard has zeroed it. So nothing
    /// has to be zeroed.
    Zeros,
}

/// The size of a file system that is created together with its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// The options determine the size before any file is known. The layout is that of mke2fs.
    Given,
    /// The size is chosen when all files are known, so that they fit and the given space stays
    /// free. The inode tables and the journal are placed after the data.
    Fitted(Spare),
}

/// The space that stays free in a file system whose size is computed from its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spare {
    /// Number of free bytes.
    pub bytes: u64,
    /// Further free space, as a percentage of the used space.
    pub percent: u32,
}

/// How attributes and times that ext4 cannot store are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLoss {
    /// A property that cannot be stored is an error.
    #[default]
    Fail,
    /// The attribute is left out, or the time is changed to the nearest possible one. The report
    /// names the file and what was lost.
    Report,
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

/// How to make a file system: the options of [`super::mkfs`]. The defaults are those of
/// `mke2fs -t ext4`. The most common options have methods; each is a field too, and more fields may
/// come.
///
/// ```
/// use lanefs_device::RamDevice;
/// use lanefs_mkfs::{InodeCount, JournalSize, MkfsOptions};
///
/// let mut options = MkfsOptions::new()
///     .label("backup")
///     .inodes(InodeCount::PerBytes(64 << 10))
///     .journal(JournalSize::Blocks(4096));
/// options.stride = 16;
/// lanefs_mkfs::mkfs(&RamDevice::create(64 << 20)?, &options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MkfsOptions {
    /// Size in bytes; `None` uses the whole device.
    pub size: Option<u64>,
    /// Block size; `None` chooses 1 KiB for a file system of less than 512 MiB, otherwise 4 KiB.
    pub block_size: Option<BlockSize>,
    /// With the feature `bigalloc`: the cluster size in bytes. A cluster has from 2 to 65,536
    /// blocks, and their number is a power of two. `None` chooses 16 blocks.
    pub cluster_size: Option<u32>,
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
    /// With the feature `fast_commit`: bytes of the journal for fast commits, in addition to
    /// `journal`; `None` and 0 choose a 64th of the size that a journal has by default.
    pub fast_commit_bytes: Option<u64>,
    /// Percentage of the blocks that only root may take, from 0 to 50.
    pub reserved_percent: f64,
    /// Seconds since 1970 for all times; now if `None`.
    pub time: Option<u64>,
    /// The features; see [`Kind::features`]. Those that need a missing feature are dropped:
    /// `orphan_file` without `has_journal`, `metadata_csum_seed` without `metadata_csum`.
    pub features: Features,
    /// The intended use.
    pub usage: Usage,
    /// Blocks per group (with `bigalloc`, clusters per group), a multiple of 8. `None` chooses the
    /// number of bits in a block.
    pub blocks_per_group: Option<u32>,
    /// Groups per flexible group, a power of two.
    pub groups_per_flex: u32,
    /// Where bitmaps and inode tables are placed.
    pub tables: TablePlaces,
    /// Number of blocks to which the file system can grow while it is mounted; `None` chooses 1,024
    /// times the size.
    pub most_blocks: Option<u64>,
    /// The directory where the file system was last mounted, at most 63 bytes.
    pub last_mounted: Vec<u8>,
    /// How the kernel reacts when it detects an error.
    pub on_error: OnError,
    /// Whether the superblock says that the file system is for development kernels only.
    pub is_test: bool,
    /// When inode tables are zeroed. If group descriptors have no checksums, the tables are always
    /// zeroed immediately.
    pub inode_tables: InodeTables,
    /// The present contents of the device.
    pub contents: Contents,
    /// Blocks per chunk of the underlying RAID, or 0; a hint for allocation.
    pub stride: u16,
    /// Data blocks in a whole stripe of the underlying RAID, or 0; a hint for allocation.
    pub stripe_width: u32,
    /// With the feature `casefold`: whether names that are not UTF-8 are refused.
    pub folding: Folding,
    /// With the feature `mmp`: seconds between two writes of the MMP block by a mount, at most 300.
    pub mmp_update_interval: u16,
    /// How file properties that ext4 cannot store are treated.
    pub on_loss: OnLoss,
    /// User and group of the root directory.
    pub root_owner: (u32, u32),
}

impl Default for MkfsOptions {
    fn default() -> MkfsOptions {
        MkfsOptions {
            size: None,
            block_size: None,
            cluster_size: None,
            inodes: InodeCount::BySize,
            inode_size: 256,
            label: Vec::new(),
            uuid: None,
            hash_seed: None,
            journal: JournalSize::BySize,
            fast_commit_bytes: None,
            reserved_percent: 5.0,
            time: None,
            features: Kind::Ext4.features(),
            usage: Usage::BySize,
            blocks_per_group: None,
            groups_per_flex: 16,
            tables: TablePlaces::ByGroup,
            most_blocks: None,
            last_mounted: Vec::new(),
            on_error: OnError::Continue,
            is_test: false,
            inode_tables: InodeTables::Lazy,
            contents: Contents::Unknown,
            stride: 0,
            stripe_width: 0,
            folding: Folding::Lenient,
            mmp_update_interval: 5,
            on_loss: OnLoss::Fail,
            root_owner: (0, 0),
        }
    }
}

impl MkfsOptions {
    /// Returns the defaults.
    pub fn new() -> MkfsOptions {
        MkfsOptions::default()
    }

    /// Sets the size in bytes, in place of that of the device.
    pub fn size(self, bytes: u64) -> MkfsOptions {
        MkfsOptions { size: Some(bytes), ..self }
    }

    /// Sets the block size, in place of 1 KiB for less than 512 MiB and 4 KiB otherwise.
    pub fn block_size(self, size: BlockSize) -> MkfsOptions {
        MkfsOptions { block_size: Some(size), ..self }
    }

    /// Sets the number of inodes.
    pub fn inodes(self, inodes: InodeCount) -> MkfsOptions {
        MkfsOptions { inodes, ..self }
    }

    /// Sets the size of an inode in bytes: a power of two from 128 to the block size.
    pub fn inode_size(self, inode_size: u16) -> MkfsOptions {
        MkfsOptions { inode_size, ..self }
    }

    /// Sets the label, at most 16 bytes.
    pub fn label(self, label: impl Into<Vec<u8>>) -> MkfsOptions {
        MkfsOptions { label: label.into(), ..self }
    }

    /// Sets the UUID, which is random otherwise.
    pub fn uuid(self, uuid: [u8; 16]) -> MkfsOptions {
        MkfsOptions { uuid: Some(uuid), ..self }
    }

    /// Sets the size of the journal.
    pub fn journal(self, journal: JournalSize) -> MkfsOptions {
        MkfsOptions { journal, ..self }
    }

    /// Sets the percentage of the blocks that only root may take, from 0 to 50.
    pub fn reserved_percent(self, reserved_percent: f64) -> MkfsOptions {
        MkfsOptions { reserved_percent, ..self }
    }

    /// Sets the features.
    pub fn features(self, features: Features) -> MkfsOptions {
        MkfsOptions { features, ..self }
    }

    /// Sets the intended use.
    pub fn usage(self, usage: Usage) -> MkfsOptions {
        MkfsOptions { usage, ..self }
    }

    /// Sets what the device contains. Nothing is written to where it has zeros already.
    pub fn contents(self, contents: Contents) -> MkfsOptions {
        MkfsOptions { contents, ..self }
    }

    /// Sets user and group of the root directory.
    pub fn root_owner(self, uid: u32, gid: u32) -> MkfsOptions {
        MkfsOptions { root_owner: (uid, gid), ..self }
    }

    /// Returns the default features of Debian 12, for images that older tools read.
    pub fn debian_12() -> Features {
        let mut features = Kind::Ext4.features();
        features.compat -= Compat::ORPHAN_FILE;
        features.incompat -= Incompat::CSUM_SEED;
        features
    }

    /// Returns the block size of a file system of `bytes` bytes.
    pub fn block_size_for(&self, bytes: u64) -> Option<BlockSize> {
        self.block_size.or_else(|| BlockSize::new(self.usage.defaults(bytes).0))
    }

    /// Returns the cluster size of a file system whose blocks have this size.
    pub(crate) fn clusters_for(&self, block_size: BlockSize) -> Result<Clusters, MkfsError> {
        let wrong = MkfsError::Option { option: "cluster size" };
        if !self.features.ro_compat.contains(RoCompat::BIGALLOC) {
            return Ok(Clusters::new(0));
        }
        let Some(bytes) = self.cluster_size else { return Ok(Clusters::new(4)) };
        let blocks = bytes >> block_size.bits();
        let right = bytes.is_power_of_two() && (2..=1 << 16).contains(&blocks);
        if right { Ok(Clusters::new(blocks.trailing_zeros())) } else { Err(wrong) }
    }

    /// Returns these options with a UUID, a hash seed and a time. Values that are missing are
    /// chosen now.
    pub(crate) fn identified(&self) -> MkfsOptions {
        let identity = self.identity();
        MkfsOptions {
            uuid: Some(identity.uuid),
            hash_seed: Some(identity.hash_seed),
            time: Some(identity.time),
            ..self.clone()
        }
    }

    /// Returns the identity of the new file system. A UUID or hash seed that the options do not
    /// specify is chosen at random. The default time is the present.
    pub fn identity(&self) -> Identity {
        Identity {
            uuid: self.uuid.unwrap_or_else(random_uuid),
            hash_seed: self.hash_seed.unwrap_or_else(random_uuid),
            time: self.time.unwrap_or_else(|| Time::now().secs as u64),
        }
    }

    pub(crate) fn check(&self) -> Result<(), MkfsError> {
        let block_size = self.block_size.map_or(1024..=4096, |size| {
            let bytes = size.bytes();
            bytes..=bytes
        });
        let ranges = [
            (self.label.len() <= 16, "label"),
            (self.last_mounted.len() < 64, "last mounted directory"),
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
                self.blocks_per_group.is_none_or(|blocks| {
                    blocks.is_multiple_of(8)
                        && (256..=*block_size.end() as u32 * 8).contains(&blocks)
                }),
                "blocks per group",
            ),
            (self.groups_per_flex.is_power_of_two(), "groups per flexible group"),
            (
                self.tables == TablePlaces::ByGroup
                    || self.features.incompat.contains(Incompat::FLEX_BG),
                "packed metadata (without flex_bg)",
            ),
        ];
        if let Some((_, option)) = ranges.into_iter().find(|(right, _)| !right) {
            return Err(MkfsError::Option { option });
        }
        if self.cluster_size.is_some() && !self.features.ro_compat.contains(RoCompat::BIGALLOC) {
            return Err(MkfsError::FeatureRule { rule: "a cluster size needs bigalloc" });
        }
        let has_fast_commits = self.features.compat.contains(Compat::FAST_COMMIT);
        if self.fast_commit_bytes.is_some() && !has_fast_commits {
            return Err(MkfsError::FeatureRule { rule: "fast_commit_size needs fast_commit" });
        }
        let folds = self.features.incompat.contains(Incompat::CASEFOLD);
        if self.folding == Folding::Strict && !folds {
            return Err(MkfsError::FeatureRule { rule: "strict names need casefold" });
        }
        check(settled(self.features))
    }
}

// The features of a new file system: the sets of mke2fs.conf, and the rules between features.

/// The features that mke2fs sets for every kind of file system.
const BASE: Features = Features {
    compat: Compat::EXT_ATTR.union(Compat::RESIZE_INODE).union(Compat::DIR_INDEX),
    incompat: Incompat::FILETYPE,
    ro_compat: RoCompat::SPARSE_SUPER.union(RoCompat::LARGE_FILE),
};

/// The features that a new file system can have. `check` also requires that Lanefs can write them.
const MAKEABLE: Features = Features {
    compat: BASE
        .compat
        .union(Compat::HAS_JOURNAL)
        .union(Compat::FAST_COMMIT)
        .union(Compat::ORPHAN_FILE)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::STABLE_INODES),
    incompat: BASE
        .incompat
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::META_BG)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::EA_INODE)
        .union(Incompat::LARGE_DIR)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    ro_compat: BASE
        .ro_compat
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY),
};

/// A kind of file system, as in `mke2fs -t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Without journal and extents.
    Ext2,
    /// With a journal, without extents.
    Ext3,
    /// The features that `mke2fs -t ext4` of e2fsprogs 1.47 sets by default.
    #[default]
    Ext4,
}

impl Kind {
    /// Returns the features that a new file system of this kind has by default.
    pub fn features(self) -> Features {
        let mut features = BASE;
        if self != Kind::Ext2 {
            features.compat |= Compat::HAS_JOURNAL;
        }
        if self == Kind::Ext4 {
            features.compat |= Compat::ORPHAN_FILE;
            features.incompat |=
                Incompat::EXTENTS | Incompat::BIT64 | Incompat::FLEX_BG | Incompat::CSUM_SEED;
            features.ro_compat |= RoCompat::HUGE_FILE
                | RoCompat::DIR_NLINK
                | RoCompat::EXTRA_ISIZE
                | RoCompat::METADATA_CSUM;
        }
        features
    }
}

/// Returns the features without those that depend on a missing feature, and without `GDT_CSUM` if
/// `METADATA_CSUM` replaces it. mke2fs drops the same features silently.
pub(crate) fn settled(mut features: Features) -> Features {
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        features.ro_compat -= RoCompat::GDT_CSUM;
    } else {
        features.incompat -= Incompat::CSUM_SEED;
    }
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        features.compat -= Compat::ORPHAN_FILE;
    }
    features
}

/// Checks that a file system with these features can be made, and that Lanefs can write it.
pub(crate) fn check(features: Features) -> Result<(), MkfsError> {
    let beyond = Features {
        compat: features.compat - MAKEABLE.compat,
        incompat: features.incompat - MAKEABLE.incompat,
        ro_compat: features.ro_compat - MAKEABLE.ro_compat,
    };
    let names = match features.support() {
        _ if beyond != Features::default() => beyond.names(),
        Support::ReadWrite => return check_pairs(features),
        Support::ReadOnly(names) | Support::Refused(names) => names,
    };
    Err(MkfsError::Feature { names: names.join(", ") })
}

fn check_pairs(features: Features) -> Result<(), MkfsError> {
    let Features { compat, incompat, ro_compat } = features;
    let has_extents = incompat.contains(Incompat::EXTENTS);
    let is_sparse = ro_compat.contains(RoCompat::SPARSE_SUPER);
    let grows = compat.contains(Compat::RESIZE_INODE);
    let has_clusters = ro_compat.contains(RoCompat::BIGALLOC);
    let wrong = [
        (has_clusters && !has_extents, "bigalloc needs extent"),
        (incompat.contains(Incompat::BIT64) && !has_extents, "64bit needs extent"),
        (grows && !is_sparse, "resize_inode needs sparse_super"),
        (
            grows && incompat.contains(Incompat::META_BG),
            "resize_inode and meta_bg exclude each other",
        ),
    ];
    match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, rule)) => Err(MkfsError::FeatureRule { rule }),
        None => Ok(()),
    }
}
