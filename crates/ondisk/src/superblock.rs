//! The superblock: 1024 bytes at byte 1024 of the image.
//!
//! [`Superblock::decode`] makes every check; [`Geometry`] is the copyable part of the result.
//! Setters leave all other bytes unchanged, so unknown fields survive.
//!
//! Source: ext4 disk layout documentation, "The Super Block".

mod check;
mod clusters;
mod compare;
mod geometry;
mod journal_device;
mod mounted;
mod raw;
mod support;

pub use crate::cause::superblock::Cause;
pub use clusters::Clusters;
pub use geometry::{Geometry, InodePlace};
pub use journal_device::JournalDevice;
pub use raw::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};

use crate::casefold::Folding;
use crate::checksum::{Checksums, Seed};
use crate::error::Corruption;
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::types::{Block, Ino};
use bitflags::bitflags;
use zerocopy::{FromBytes, IntoBytes};

/// The flag of `s_encoding_flags` that allows only names that are valid in the encoding.
const STRICT_ENCODING: u16 = 1;

bitflags! {
    /// The flags of `s_state`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct State: u16 {
        /// The file system was unmounted cleanly. With a journal, this flag stays set while the
        /// file system is mounted.
        const VALID = 1;
        /// Errors were found.
        const ERROR = 2;
        /// Orphans are being processed.
        const ORPHANS = 4;
        /// A fast commit replay is under way.
        const FAST_COMMIT_REPLAY = 0x20;
        const _ = !0;
    }
}

bitflags! {
    /// The flags of `s_default_mount_opts`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct DefaultMountOptions: u32 {
        /// Prints debugging output.
        const DEBUG = 0x1;
        /// New files get the group of their directory.
        const BSD_GROUPS = 0x2;
        /// Allows `user.` attributes.
        const USER_XATTR = 0x4;
        /// Enables access control lists.
        const ACL = 0x8;
        /// Disables 32-bit user ids.
        const UID16 = 0x10;
        /// Writes all data through the journal.
        const DATA_JOURNAL = 0x20;
        /// Writes data before the metadata that maps the data. `DATA_JOURNAL` and `DATA_ORDERED`
        /// together mean writeback mode.
        const DATA_ORDERED = 0x40;
        /// Uses no write barriers (`nobarrier`).
        const NO_BARRIER = 0x100;
        /// Checks that files do not use blocks of metadata (`block_validity`).
        const BLOCK_VALIDITY = 0x200;
        /// Notifies the device of freed blocks.
        const DISCARD = 0x400;
        /// Disables delayed allocation.
        const NO_DELALLOC = 0x800;
        const _ = !0;
    }
}

bitflags! {
    /// The flags of `s_flags`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SuperFlags: u32 {
        /// Directory hashes of this image treat bytes of names as signed.
        const SIGNED_HASH = 1;
        /// Directory hashes of this image treat bytes of names as unsigned.
        const UNSIGNED_HASH = 2;
        /// The file system is for tests of development code.
        const TEST_FILESYS = 4;
        const _ = !0;
    }
}

/// The reaction when an error is detected (`s_errors`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// Continue.
    Continue,
    /// Permit no more writes.
    ReadOnly,
    /// Stop the machine.
    Panic,
}

/// The location of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalPlace {
    /// The journal is in a file.
    Inode(Ino),
    /// The journal is on a separate device with this uuid.
    Device([u8; 16]),
}

/// An error that was found while the file system was mounted. The superblock stores the first and
/// the last of these errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Seconds since 1970.
    pub time: u64,
    /// The affected inode, or 0.
    pub ino: u32,
    /// The affected block, or 0.
    pub block: u64,
    /// The function that found the error: at most 32 bytes of the name are stored.
    pub function: String,
    /// The number of the source line at which the error was found.
    pub line: u32,
    /// The kind of error.
    pub code: ErrorCode,
}

/// An error code of the superblock (`EXT4_ERR_*`); dumpe2fs prints the names of these codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ErrorCode {
    /// An error for which there is no other code.
    Unknown = 1,
    /// The device failed: EIO.
    Io = 2,
    /// The file system is damaged: EFSCORRUPTED.
    Damage = 5,
}

/// Whether the journal must be replayed before use: feature `needs_recovery`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// The feature is set.
    Needed,
    /// The feature is clear.
    NotNeeded,
}

/// Whether the orphan file has entries: feature `orphan_present`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanEntries {
    /// The feature is set.
    Present,
    /// The feature is clear.
    Absent,
}

/// A checked superblock.
#[derive(Debug, Clone)]
pub struct Superblock {
    raw: RawSuperblock,
    geometry: Geometry,
}

impl Superblock {
    /// Decodes a superblock with all checks. `bytes` begins at [`SUPERBLOCK_OFFSET`] of the image,
    /// and is at least 1024 bytes long.
    ///
    /// # Errors
    /// [`Corruption::Superblock`].
    pub fn decode(bytes: &[u8]) -> Result<Superblock, Corruption> {
        let (raw, _) = RawSuperblock::read_from_prefix(bytes)
            .map_err(|_| Corruption::Superblock { cause: Cause::Length { len: bytes.len() } })?;
        check::magic_and_checksum(&raw).map_err(|cause| Corruption::Superblock { cause })?;
        Superblock::from_raw(raw)
    }

    /// Creates a superblock from its fields. Makes all checks of [`Superblock::decode`] except
    /// those of magic and checksum, which [`Superblock::encode`] sets.
    ///
    /// # Errors
    /// [`Corruption::Superblock`].
    pub fn from_raw(raw: RawSuperblock) -> Result<Superblock, Corruption> {
        let geometry = check::geometry(&raw).map_err(|cause| Corruption::Superblock { cause })?;
        Ok(Superblock { raw, geometry })
    }

    /// Returns the bytes, with magic and checksum set.
    pub fn encode(&self) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = self.raw.clone();
        raw.s_magic.set(check::MAGIC);
        if self.features().ro_compat.contains(RoCompat::METADATA_CSUM) {
            raw.s_checksum.set(check::checksum(&raw));
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Returns the fields in their on-disk form.
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Returns the sizes and positions in the file system.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the feature words.
    pub fn features(&self) -> Features {
        self.geometry.features()
    }

    /// Returns the kind of the metadata's checksums, and their start value.
    pub fn checksums(&self) -> Checksums {
        let features = self.features();
        let uuid = self.raw.s_uuid;
        if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            let seed = if features.incompat.contains(Incompat::CSUM_SEED) {
                Seed::from_raw(self.raw.s_checksum_seed.get())
            } else {
                Seed::of_uuid(&uuid)
            };
            Checksums::All { seed }
        } else if features.ro_compat.contains(RoCompat::GDT_CSUM) {
            Checksums::Descriptors { uuid }
        } else {
            Checksums::None
        }
    }

    /// Returns the seed for the hashes of attribute values that are in inodes of their own
    /// (`ea_inode`). Such hashes exist with and without `metadata_csum`.
    pub fn value_seed(&self) -> Seed {
        match self.features().incompat.contains(Incompat::CSUM_SEED) {
            true => Seed::from_raw(self.raw.s_checksum_seed.get()),
            false => Seed::of_uuid(&self.raw.s_uuid),
        }
    }

    /// Returns the file system's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.raw.s_uuid
    }

    /// Returns the label, without the trailing zeros.
    pub fn label(&self) -> &[u8] {
        until_zero(&self.raw.s_volume_name)
    }

    /// Returns the last mount point, without the trailing zeros.
    pub fn last_mounted(&self) -> &[u8] {
        until_zero(&self.raw.s_last_mounted)
    }

    /// Returns the number of free blocks as last written to the superblock. With `bigalloc`, only
    /// the blocks of free clusters count. The number is a hint; the group descriptors have the
    /// exact numbers.
    pub fn free_blocks(&self) -> u64 {
        let raw = &self.raw;
        let (lo, hi) = (raw.s_free_blocks_count_lo.get(), raw.s_free_blocks_count_hi.get());
        check::wide(self.features(), lo, hi)
    }

    /// Returns the number of free inodes as last written to the superblock. The number is a hint;
    /// the group descriptors have the exact numbers.
    pub fn free_inodes(&self) -> u32 {
        self.raw.s_free_inodes_count.get()
    }

    /// Returns the number of blocks that only the reserved user and group may use.
    pub fn reserved_blocks(&self) -> u64 {
        let raw = &self.raw;
        check::wide(self.features(), raw.s_r_blocks_count_lo.get(), raw.s_r_blocks_count_hi.get())
    }

    /// Returns how a directory compares names if it has the flag that `chattr +F` sets. Returns
    /// `None` without the feature `casefold`, because then no directory has the flag.
    pub fn folding(&self) -> Option<Folding> {
        let has = self.features().incompat.contains(Incompat::CASEFOLD);
        let is_strict = self.raw.s_encoding_flags.get() & STRICT_ENCODING != 0;
        has.then_some(if is_strict { Folding::Strict } else { Folding::Lenient })
    }

    /// Returns the block of multiple mount protection (feature `mmp`).
    pub fn mmp_block(&self) -> Option<Block> {
        let has = self.features().incompat.contains(Incompat::MMP);
        has.then(|| Block(self.raw.s_mmp_block.get()))
    }

    /// Returns how many seconds a mounted file system waits between two writes of the block
    /// [`Superblock::mmp_block`]; 0 means the default.
    pub fn mmp_update_interval(&self) -> u16 {
        self.raw.s_mmp_interval.get()
    }

    /// Returns the inodes of the quota files, one for each kind, in the order of
    /// [`crate::quota::Kind`].
    pub fn quota_files(&self) -> [Option<Ino>; 3] {
        let (raw, features) = (&self.raw, self.features().ro_compat);
        let has_projects = features.contains(RoCompat::PROJECT);
        let inodes = [
            raw.s_usr_quota_inum.get(),
            raw.s_grp_quota_inum.get(),
            if has_projects { raw.s_prj_quota_inum.get() } else { 0 },
        ];
        let has_quotas = features.contains(RoCompat::QUOTA);
        inodes.map(|ino| (has_quotas && ino != 0).then_some(Ino(ino)))
    }

    /// Returns the user that may use reserved blocks.
    pub fn reserved_uid(&self) -> u32 {
        self.raw.s_def_resuid.get().into()
    }

    /// Returns the group that may use reserved blocks.
    pub fn reserved_gid(&self) -> u32 {
        self.raw.s_def_resgid.get().into()
    }

    /// Returns the state flags, one of which says whether the file system is clean.
    pub fn state(&self) -> State {
        State::from_bits_retain(self.raw.s_state.get())
    }

    /// Returns the reaction to a detected error; a value out of range counts as `Continue`, the
    /// default.
    pub fn on_error(&self) -> OnError {
        match self.raw.s_errors.get() {
            2 => OnError::ReadOnly,
            3 => OnError::Panic,
            _ => OnError::Continue,
        }
    }

    /// Returns the location of the journal, if there is one.
    pub fn journal(&self) -> Option<JournalPlace> {
        if !self.features().compat.contains(Compat::HAS_JOURNAL) {
            return None;
        }
        Some(match self.raw.s_journal_inum.get() {
            0 => JournalPlace::Device(self.raw.s_journal_uuid),
            ino => JournalPlace::Inode(Ino(ino)),
        })
    }

    /// Returns whether the journal is on a device of its own.
    pub fn has_journal_elsewhere(&self) -> bool {
        matches!(self.journal(), Some(JournalPlace::Device(_)))
    }

    /// Returns the orphan file, if there is one.
    pub fn orphan_file(&self) -> Option<Ino> {
        let has = self.features().compat.contains(Compat::ORPHAN_FILE);
        has.then(|| Ino(self.raw.s_orphan_file_inum.get()))
    }

    /// Returns the head of the orphan list that is chained through the inodes.
    pub fn last_orphan(&self) -> Option<Ino> {
        let ino = self.raw.s_last_orphan.get();
        (ino != 0).then_some(Ino(ino))
    }

    /// Returns the inode of `lost+found`, if the superblock contains it.
    pub fn lost_and_found(&self) -> Option<Ino> {
        let ino = self.raw.s_lpf_ino.get();
        (ino != 0 && ino <= self.geometry.inode_count()).then_some(Ino(ino))
    }

    /// Returns the seed of the directory hashes.
    pub fn hash_seed(&self) -> [u32; 4] {
        self.raw.s_hash_seed.map(|word| word.get())
    }

    /// Returns the kind of hash that new directories use: 0 is legacy, 1 is half MD4, 2 is TEA.
    /// [`SuperFlags`] determine whether the bytes of names count as signed.
    pub fn hash_version(&self) -> u8 {
        self.raw.s_def_hash_version
    }

    /// Returns the flags, two of which determine whether directory hashes treat bytes of names as
    /// signed.
    pub fn flags(&self) -> SuperFlags {
        SuperFlags::from_bits_retain(self.raw.s_flags.get())
    }

    /// Returns the default options of a mount.
    pub fn default_mount_options(&self) -> DefaultMountOptions {
        DefaultMountOptions::from_bits_retain(self.raw.s_default_mount_opts.get())
    }

    /// Returns `i_extra_isize` for new inodes. For 128-byte inodes it is 0. With the feature
    /// `extra_isize` it is the larger of `s_want_extra_isize` and `s_min_extra_isize`; an invalid
    /// value does not count. Without the feature, or if both values are invalid, it is 32.
    pub fn extra_isize(&self) -> u16 {
        let room = (self.geometry.inode_size() - 128) as u16;
        let fits = |want: u16| want >= 32 && want <= room && want.is_multiple_of(4);
        if room == 0 {
            return 0;
        }
        let wanted = [self.raw.s_want_extra_isize.get(), self.raw.s_min_extra_isize.get()];
        let largest = wanted.into_iter().filter(|&want| fits(want)).max();
        match self.features().ro_compat.contains(RoCompat::EXTRA_ISIZE) {
            true => largest.unwrap_or(32),
            false => 32,
        }
    }

    /// Returns how many blocks of a RAID stripe are on each disk, or 0 if the field is not set.
    pub fn raid_stride(&self) -> u16 {
        self.raw.s_raid_stride.get()
    }

    /// Returns the number of data blocks of a whole RAID stripe, or 0 if the field is not set.
    pub fn raid_stripe_width(&self) -> u32 {
        self.raw.s_raid_stripe_width.get()
    }

    /// Returns the number of mounts since the last check.
    pub fn mount_count(&self) -> u16 {
        self.raw.s_mnt_count.get()
    }

    /// Returns the KiB written since the file system was created.
    pub fn kbytes_written(&self) -> u64 {
        self.raw.s_kbytes_written.get()
    }

    /// Returns the number of errors found since the last check.
    pub fn error_count(&self) -> u32 {
        self.raw.s_error_count.get()
    }

    /// Returns the time of the last write, in seconds since 1970.
    pub fn write_time(&self) -> u64 {
        join_time(self.raw.s_wtime.get(), self.raw.s_wtime_hi)
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or(bytes)
}

fn join_time(lo: u32, hi: u8) -> u64 {
    u64::from(hi) << 32 | u64::from(lo)
}

fn split_time(secs: u64) -> (zerocopy::little_endian::U32, u8) {
    ((secs as u32).into(), (secs >> 32) as u8)
}
