//! The feature words, the names of the features, and how Lanefs treats each feature.
//!
//! The words are from the ext4 disk layout documentation ("Super Block": `s_feature_compat`,
//! `s_feature_incompat`, `s_feature_ro_compat`); the names are as `dumpe2fs` prints them.

use bitflags::bitflags;

bitflags! {
    /// Features that an implementation may ignore.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Compat: u32 {
        /// Directories get blocks before they need them.
        const DIR_PREALLOC = 0x0001;
        /// There may be inodes of the AFS server.
        const IMAGIC_INODES = 0x0002;
        /// There is a journal.
        const HAS_JOURNAL = 0x0004;
        /// There may be extended attributes.
        const EXT_ATTR = 0x0008;
        /// Inode 7 reserves descriptor blocks, so that the file system can grow.
        const RESIZE_INODE = 0x0010;
        /// Directories may have a hashed index.
        const DIR_INDEX = 0x0020;
        /// Abandoned forerunner of `uninit_bg`.
        const LAZY_BG = 0x0040;
        /// Snapshots: an inode lists the excluded blocks.
        const EXCLUDE_INODE = 0x0080;
        /// Snapshots: bitmaps mark the excluded blocks.
        const EXCLUDE_BITMAP = 0x0100;
        /// At most two backups of the superblock, in the groups of `s_backup_bgs`.
        const SPARSE_SUPER2 = 0x0200;
        /// The journal may hold fast commits.
        const FAST_COMMIT = 0x0400;
        /// The inode numbers and the UUID of the file system never change.
        const STABLE_INODES = 0x0800;
        /// Orphans are recorded in a file.
        const ORPHAN_FILE = 0x1000;
        const _ = !0;
    }
}

bitflags! {
    /// Features that an implementation must support to be allowed to mount the file system.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Incompat: u32 {
        /// Compressed files (never in the kernel).
        const COMPRESSION = 0x0001;
        /// Directory entries keep the file type.
        const FILETYPE = 0x0002;
        /// The journal must be replayed.
        const RECOVER = 0x0004;
        /// The device is not a file system but a separate journal device.
        const JOURNAL_DEV = 0x0008;
        /// Descriptors are stored in the groups that they describe.
        const META_BG = 0x0010;
        /// Inodes may map their blocks by extents.
        const EXTENTS = 0x0040;
        /// Block numbers and descriptors are 64-bit.
        const BIT64 = 0x0080;
        /// A block prevents mounts on two machines at the same time.
        const MMP = 0x0100;
        /// Bitmaps and tables may be outside of their group.
        const FLEX_BG = 0x0200;
        /// The value of an extended attribute may be in an inode of its own.
        const EA_INODE = 0x0400;
        /// Directory entries may contain data.
        const DIRDATA = 0x1000;
        /// The seed of all checksums is in the superblock, so the uuid can change.
        const CSUM_SEED = 0x2000;
        /// Larger directories
        /// ([`DirFormat::has_large_dirs`](crate::dirent::DirFormat::has_large_dirs)), and indexes
        /// of three levels.
        const LARGE_DIR = 0x4000;
        /// Small files are in the inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted files.
        const ENCRYPT = 0x10000;
        /// Directories that ignore case.
        const CASEFOLD = 0x20000;
        const _ = !0;
    }
}

bitflags! {
    /// Features that an implementation must support to be allowed to write the file system.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RoCompat: u32 {
        /// The superblock and its backups are only in groups 0, 1 and powers of 3, 5 and 7.
        const SPARSE_SUPER = 0x0001;
        /// Files may be larger than 2 GiB.
        const LARGE_FILE = 0x0002;
        /// Never used.
        const BTREE_DIR = 0x0004;
        /// Files may have more than 2^32 sectors.
        const HUGE_FILE = 0x0008;
        /// Descriptors have a crc16, and parts of groups may be uninitialised (`gdt_csum`).
        const GDT_CSUM = 0x0010;
        /// Directories may have more than 65,000 subdirectories.
        const DIR_NLINK = 0x0020;
        /// Inodes larger than 128 bytes reserve room for further fields.
        const EXTRA_ISIZE = 0x0040;
        /// There is a snapshot.
        const HAS_SNAPSHOT = 0x0080;
        /// Quotas are kept in hidden inodes.
        const QUOTA = 0x0100;
        /// Blocks are allocated in clusters.
        const BIGALLOC = 0x0200;
        /// All metadata has crc32c checksums.
        const METADATA_CSUM = 0x0400;
        /// A feature that was never in the kernel.
        const REPLICA = 0x0800;
        /// The image must not be written.
        const READONLY = 0x1000;
        /// Project identifiers and quotas.
        const PROJECT = 0x2000;
        /// Files may share blocks (Android).
        const SHARED_BLOCKS = 0x4000;
        /// Files may be verity files: read-only, and verified by a hash tree.
        const VERITY = 0x8000;
        /// The orphan file has entries.
        const ORPHAN_PRESENT = 0x10000;
        const _ = !0;
    }
}

/// The three feature words of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features {
    /// Features that a program may ignore if it does not know them.
    pub compat: Compat,
    /// Features that a program must know to mount the file system.
    pub incompat: Incompat,
    /// Features that a program must know to write to the file system.
    pub ro_compat: RoCompat,
}

/// The operations that Lanefs supports on a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// Reading and writing.
    ReadWrite,
    /// Only reading, because of these features.
    ReadOnly(Vec<String>),
    /// No operation, because of these features.
    Refused(Vec<String>),
}

/// The features with names, in the order of the words and bits.
const NAMES: [(Features, &str); 43] = [
    (Features::compat(Compat::DIR_PREALLOC), "dir_prealloc"),
    (Features::compat(Compat::IMAGIC_INODES), "imagic_inodes"),
    (Features::compat(Compat::HAS_JOURNAL), "has_journal"),
    (Features::compat(Compat::EXT_ATTR), "ext_attr"),
    (Features::compat(Compat::RESIZE_INODE), "resize_inode"),
    (Features::compat(Compat::DIR_INDEX), "dir_index"),
    (Features::compat(Compat::LAZY_BG), "lazy_bg"),
    (Features::compat(Compat::EXCLUDE_BITMAP), "snapshot_bitmap"),
    (Features::compat(Compat::SPARSE_SUPER2), "sparse_super2"),
    (Features::compat(Compat::FAST_COMMIT), "fast_commit"),
    (Features::compat(Compat::STABLE_INODES), "stable_inodes"),
    (Features::compat(Compat::ORPHAN_FILE), "orphan_file"),
    (Features::incompat(Incompat::COMPRESSION), "compression"),
    (Features::incompat(Incompat::FILETYPE), "filetype"),
    (Features::incompat(Incompat::RECOVER), "needs_recovery"),
    (Features::incompat(Incompat::JOURNAL_DEV), "journal_dev"),
    (Features::incompat(Incompat::META_BG), "meta_bg"),
    (Features::incompat(Incompat::EXTENTS), "extent"),
    (Features::incompat(Incompat::BIT64), "64bit"),
    (Features::incompat(Incompat::MMP), "mmp"),
    (Features::incompat(Incompat::FLEX_BG), "flex_bg"),
    (Features::incompat(Incompat::EA_INODE), "ea_inode"),
    (Features::incompat(Incompat::DIRDATA), "dirdata"),
    (Features::incompat(Incompat::CSUM_SEED), "metadata_csum_seed"),
    (Features::incompat(Incompat::LARGE_DIR), "large_dir"),
    (Features::incompat(Incompat::INLINE_DATA), "inline_data"),
    (Features::incompat(Incompat::ENCRYPT), "encrypt"),
    (Features::incompat(Incompat::CASEFOLD), "casefold"),
    (Features::ro_compat(RoCompat::SPARSE_SUPER), "sparse_super"),
    (Features::ro_compat(RoCompat::LARGE_FILE), "large_file"),
    (Features::ro_compat(RoCompat::HUGE_FILE), "huge_file"),
    (Features::ro_compat(RoCompat::GDT_CSUM), "uninit_bg"),
    (Features::ro_compat(RoCompat::DIR_NLINK), "dir_nlink"),
    (Features::ro_compat(RoCompat::EXTRA_ISIZE), "extra_isize"),
    (Features::ro_compat(RoCompat::QUOTA), "quota"),
    (Features::ro_compat(RoCompat::BIGALLOC), "bigalloc"),
    (Features::ro_compat(RoCompat::METADATA_CSUM), "metadata_csum"),
    (Features::ro_compat(RoCompat::REPLICA), "replica"),
    (Features::ro_compat(RoCompat::READONLY), "read-only"),
    (Features::ro_compat(RoCompat::PROJECT), "project"),
    (Features::ro_compat(RoCompat::SHARED_BLOCKS), "shared_blocks"),
    (Features::ro_compat(RoCompat::VERITY), "verity"),
    (Features::ro_compat(RoCompat::ORPHAN_PRESENT), "orphan_present"),
];

/// Lanefs reads and writes file systems with these features. `meta_bg` is one of them, because it
/// changes only the positions of descriptors.
pub const WRITABLE_INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::RECOVER)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENTS)
    .union(Incompat::BIT64)
    .union(Incompat::MMP)
    .union(Incompat::FLEX_BG)
    .union(Incompat::EA_INODE)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGE_DIR)
    .union(Incompat::INLINE_DATA)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);

/// See [`WRITABLE_INCOMPAT`].
pub const WRITABLE_RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::BIGALLOC)
    .union(RoCompat::QUOTA)
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

impl Features {
    const NONE: Features = Features::compat(Compat::empty());

    const fn compat(compat: Compat) -> Features {
        Features { compat, incompat: Incompat::empty(), ro_compat: RoCompat::empty() }
    }

    const fn incompat(incompat: Incompat) -> Features {
        Features { incompat, ..Features::NONE }
    }

    const fn ro_compat(ro_compat: RoCompat) -> Features {
        Features { ro_compat, ..Features::NONE }
    }

    /// Returns the operations that Lanefs supports on a file system with these features.
    ///
    /// Compatible features never prevent a mount. This is true even for `fast_commit`, because the
    /// journal shows whether it contains fast commits. An unknown incompatible feature prevents
    /// every mount; an unknown read-only-compatible feature permits only reading.
    pub fn support(self) -> Support {
        let Features { incompat, ro_compat, .. } = self;
        let refused = incompat.difference(WRITABLE_INCOMPAT);
        if !refused.is_empty() {
            return Support::Refused(Features::incompat(refused).names());
        }
        let mut reasons = Features::ro_compat(ro_compat.difference(WRITABLE_RO_COMPAT)).names();
        // If an attribute value is in an inode of its own, e2fsck (1.47.0) charges the blocks of
        // the value and one inode to the owner of each file that has the value. Lanefs would not
        // charge the inode, so it does not write a file system with both `ea_inode` and `quota`.
        let shares = incompat.contains(Incompat::EA_INODE) && ro_compat.contains(RoCompat::QUOTA);
        reasons.extend(shares.then(|| "quota with ea_inode".to_string()));
        if reasons.is_empty() { Support::ReadWrite } else { Support::ReadOnly(reasons) }
    }

    /// Returns the names of all features, in the order of the words and bits. A bit without a name
    /// is printed as in `dumpe2fs`: the word's letter and the bit's number.
    pub fn names(self) -> Vec<String> {
        let words =
            [('C', self.compat.bits()), ('I', self.incompat.bits()), ('R', self.ro_compat.bits())];
        let bits = words.into_iter().flat_map(|(letter, word)| {
            (0..u32::BITS).filter(move |n| word & (1 << n) != 0).map(move |n| (letter, n))
        });
        let name = |(letter, n)| {
            let bit = 1u32 << n;
            let feature = match letter {
                'C' => Features::compat(Compat::from_bits_retain(bit)),
                'I' => Features::incompat(Incompat::from_bits_retain(bit)),
                _ => Features::ro_compat(RoCompat::from_bits_retain(bit)),
            };
            let known = NAMES.iter().find(|(named, _)| *named == feature);
            known.map_or_else(|| format!("FEATURE_{letter}{n}"), |(_, name)| name.to_string())
        };
        bits.map(name).collect()
    }

    /// Returns a set with only the feature that `dumpe2fs` prints under this name. Also accepts
    /// `gdt_csum` for `uninit_bg`, and `extents` for `extent`.
    pub fn by_name(name: &str) -> Option<Features> {
        let name = match name {
            "gdt_csum" => "uninit_bg",
            "extents" => "extent",
            name => name,
        };
        NAMES.iter().find(|(_, known)| *known == name).map(|(feature, _)| *feature)
    }

    /// Returns whether group descriptors have a checksum; only then may groups be uninitialised.
    pub fn has_descriptor_checksums(self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM)
    }
}

#[cfg(test)]
mod tests;
