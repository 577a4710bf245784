//! The superblock: 1024 bytes at byte 1024 of the image.
//!
//! [`Superblock::decode`] makes every check; [`Geometry`] is the copyable part of the result.
//! Setters leave all other bytes unchanged, so unknown fields survive.
//!
//! Source: ext4 disk layout documentation, "The Super Block".

mod check;
mod geometry;
mod raw;

pub use crate::cause::SuperblockCause as Cause;
pub use check::JournalDevice;
pub use geometry::{Clusters, Geometry, InodePlace};
pub use raw::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};

use crate::block_map::BLOCKS_END;
use crate::casefold::Folding;
use crate::checksum::{Checksums, Seed};
use crate::dirent::{DirFormat, NameForm};
use crate::error::Corruption;
use crate::features::{Compat, Features, Incompat, RoCompat, Support};
use crate::hash::{HashVersion, NameBytes, NameHasher};
use crate::types::{Block, Ino};
use bitflags::bitflags;
use zerocopy::{FromZeros, IntoBytes};

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
        let raw = check::raw(bytes).map_err(|cause| Corruption::Superblock { cause })?;
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
        if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            Checksums::All { seed: self.value_seed() }
        } else if features.ro_compat.contains(RoCompat::GDT_CSUM) {
            Checksums::Descriptors { uuid: self.raw.s_uuid }
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

    /// Returns the format of the blocks of a directory with these names, or with these flags of its
    /// inode.
    pub fn dir_format(&self, names: impl Into<NameForm>) -> DirFormat {
        let (geometry, features) = (self.geometry(), self.features());
        DirFormat {
            block_size: geometry.block_size(),
            has_file_types: features.incompat.contains(Incompat::FILETYPE),
            has_checksums: features.ro_compat.contains(RoCompat::METADATA_CSUM),
            has_large_dirs: features.incompat.contains(Incompat::LARGE_DIR),
            inodes: geometry.inode_count(),
            names: names.into(),
        }
    }

    /// Returns the hasher of names for an index with this version.
    pub fn hasher(&self, version: HashVersion, folding: Folding) -> NameHasher {
        let unsigned = self.flags().contains(SuperFlags::UNSIGNED_HASH);
        let bytes = if unsigned { NameBytes::Unsigned } else { NameBytes::Signed };
        NameHasher { version, bytes, seed: self.hash_seed(), folding }
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
        u64::from(self.raw.s_wtime_hi) << 32 | u64::from(self.raw.s_wtime.get())
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or(bytes)
}

fn split_time(secs: u64) -> (zerocopy::little_endian::U32, u8) {
    ((secs as u32).into(), (secs >> 32) as u8)
}

impl Superblock {
    /// Sets the number of free blocks, limited to the number of all blocks. With `bigalloc`, only
    /// the blocks of free clusters count.
    pub fn set_free_blocks(&mut self, blocks: u64) {
        let blocks = blocks.min(self.geometry.block_count());
        self.raw.s_free_blocks_count_lo.set(blocks as u32);
        if self.features().incompat.contains(Incompat::BIT64) {
            self.raw.s_free_blocks_count_hi.set((blocks >> 32) as u32);
        }
    }

    /// Sets the number of free inodes, limited to the number of all inodes.
    pub fn set_free_inodes(&mut self, inodes: u32) {
        self.raw.s_free_inodes_count.set(inodes.min(self.geometry.inode_count()));
    }

    /// Sets the state flags, one of which says whether the file system is clean.
    pub fn set_state(&mut self, state: State) {
        self.raw.s_state.set(state.bits());
    }

    /// Sets the time of the last mount, in seconds since 1970.
    pub fn set_mount_time(&mut self, secs: u64) {
        (self.raw.s_mtime, self.raw.s_mtime_hi) = split_time(secs);
    }

    /// Sets the time of the last write, in seconds since 1970.
    pub fn set_write_time(&mut self, secs: u64) {
        (self.raw.s_wtime, self.raw.s_wtime_hi) = split_time(secs);
    }

    /// Sets the number of mounts since the last check.
    pub fn set_mount_count(&mut self, count: u16) {
        self.raw.s_mnt_count.set(count);
    }

    /// Sets features that need nothing except their bits.
    pub fn add_features(&mut self, compat: Compat, ro_compat: RoCompat) {
        let mut features = self.features();
        features.compat |= compat;
        features.ro_compat |= ro_compat;
        self.raw.s_feature_compat.set(features.compat.bits());
        self.raw.s_feature_ro_compat.set(features.ro_compat.bits());
        self.geometry.features = features;
    }

    /// Sets the head of the orphan list that is chained through the inodes.
    pub fn set_last_orphan(&mut self, ino: Option<Ino>) {
        self.raw.s_last_orphan.set(ino.map_or(0, |ino| ino.0));
    }

    /// Sets the number of KiB that were written since the file system was created.
    pub fn set_kbytes_written(&mut self, kbytes: u64) {
        self.raw.s_kbytes_written.set(kbytes);
    }

    /// Sets or clears the features that change while the file system is mounted: `needs_recovery`
    /// and `orphan_present`. Keeps the other features, on which the geometry depends.
    pub fn set_dirty_features(&mut self, recover: Recovery, orphans: OrphanEntries) {
        let features = &mut self.geometry.features;
        features.incompat.set(Incompat::RECOVER, recover == Recovery::Needed);
        features.ro_compat.set(RoCompat::ORPHAN_PRESENT, orphans == OrphanEntries::Present);
        self.raw.s_feature_incompat.set(features.incompat.bits());
        self.raw.s_feature_ro_compat.set(features.ro_compat.bits());
    }

    /// Counts an error, and stores it as the last error. If no first error is stored, also stores
    /// it as the first error. Marks the file system so that e2fsck checks it completely.
    pub fn record_error(&mut self, error: &ErrorRecord) {
        let raw = &mut self.raw;
        raw.s_state.set(raw.s_state.get() | State::ERROR.bits());
        if raw.s_first_error_time.get() == 0 && raw.s_first_error_time_hi == 0 {
            (raw.s_first_error_time, raw.s_first_error_time_hi) = split_time(error.time);
            raw.s_first_error_ino.set(error.ino);
            raw.s_first_error_block.set(error.block);
            fill(&mut raw.s_first_error_func, error.function.as_bytes());
            raw.s_first_error_line.set(error.line);
            raw.s_first_error_errcode = error.code as u8;
        }
        (raw.s_last_error_time, raw.s_last_error_time_hi) = split_time(error.time);
        raw.s_last_error_ino.set(error.ino);
        raw.s_last_error_block.set(error.block);
        fill(&mut raw.s_last_error_func, error.function.as_bytes());
        raw.s_last_error_line.set(error.line);
        raw.s_last_error_errcode = error.code as u8;
        raw.s_error_count.set(raw.s_error_count.get().saturating_add(1));
    }
}

fn fill(field: &mut [u8], value: &[u8]) {
    let len = value.len().min(field.len());
    field.fill(0);
    field[..len].copy_from_slice(&value[..len]);
}

const CREATOR_HURD: u32 = 1;
/// `s_encoding` of UTF-8 with Unicode 12.1, the only encoding of ext4.
const UTF8_12_1: u16 = 1;

impl Superblock {
    /// Returns the operations that Lanefs supports on this file system. The result depends on all
    /// fields of the superblock, not only on the features. A file system with an external journal
    /// is refused, because the caller does not have the journal's device.
    pub fn support(&self) -> Support {
        match self.has_journal_elsewhere() {
            true => Support::Refused(vec!["external journal".into()]),
            false => self.support_with_journal(),
        }
    }

    /// Returns the operations that Lanefs supports on this file system. If it has an external
    /// journal, the caller must have the journal's device.
    pub fn support_with_journal(&self) -> Support {
        if self.raw.s_creator_os.get() == CREATOR_HURD {
            // Inodes that the Hurd wrote have different fields at some offsets.
            return Support::Refused(vec!["creator OS Hurd".into()]);
        }
        let more = self.refused_beyond_features();
        match self.features().support() {
            Support::Refused(mut names) => {
                names.extend(more);
                Support::Refused(names)
            }
            _ if !more.is_empty() => Support::Refused(more),
            Support::ReadWrite => match self.read_only_reason() {
                Some(reason) => Support::ReadOnly(vec![reason.into()]),
                None => Support::ReadWrite,
            },
            support => support,
        }
    }

    /// Returns the reason why Lanefs must not write to this file system, although Lanefs supports
    /// writing with each of the file system's features; `None` if there is no such reason.
    fn read_only_reason(&self) -> Option<&'static str> {
        let has_extents = self.features().incompat.contains(Incompat::EXTENTS);
        let (clusters, blocks) = (self.geometry.clusters(), self.geometry.block_count());
        if self.exceeds_block_maps() {
            Some("more than 2^32 blocks without extent")
        } else if !clusters.are_blocks() && !has_extents {
            // The kernel refuses such file systems.
            Some("bigalloc without extent")
        } else if clusters.offset(blocks) != 0 {
            Some("a part of a cluster at the end")
        } else {
            None
        }
    }

    /// Returns the reasons, other than unsupported features, to refuse the file system.
    fn refused_beyond_features(&self) -> Vec<String> {
        let mut names = Vec::new();
        if HashVersion::from_byte(self.hash_version()).is_none() {
            names.push(format!("directory hash {}", self.hash_version()));
        }
        if self.folding().is_some() && self.raw.s_encoding.get() != UTF8_12_1 {
            names.push(format!("encoding {} of names", self.raw.s_encoding.get()));
        }
        names
    }

    /// Returns whether new files would get block maps although the file system has blocks that the
    /// pointers of a block map cannot express.
    fn exceeds_block_maps(&self) -> bool {
        !self.features().incompat.contains(Incompat::EXTENTS)
            && self.geometry.block_count() > BLOCKS_END
    }
}

// Compares two superblocks: a torn superblock with a backup, or the superblock on the device with
// the superblock in the log.

/// Features that are set or cleared while the file system is mounted.
const COMPAT_IN_USE: Compat = Compat::EXT_ATTR.union(Compat::DIR_INDEX);
const RO_COMPAT_IN_USE: RoCompat = RoCompat::LARGE_FILE
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::ORPHAN_PRESENT);

impl Superblock {
    /// Decodes like [`Superblock::decode`], but does not check the checksum. This is for a torn
    /// superblock, in which a crash left some sectors old and some new. The result may be trusted
    /// only if it [agrees](Superblock::agrees_with) with a copy whose checksum is right.
    ///
    /// # Errors
    /// [`Corruption::Superblock`].
    pub fn decode_torn(bytes: &[u8]) -> Result<Superblock, Corruption> {
        let raw = check::unsummed(bytes).map_err(|cause| Corruption::Superblock { cause })?;
        Superblock::from_raw(raw)
    }

    /// Returns whether both superblocks agree in every field that changes only when the layout of
    /// the file system changes. Other fields may differ, because a backup may be as old as the last
    /// change of the layout. None of the compared fields crosses a sector boundary, so in a torn
    /// superblock each of them is entirely old or entirely new.
    pub fn agrees_with(&self, copy: &Superblock) -> bool {
        lasting(&self.raw).as_bytes() == lasting(&copy.raw).as_bytes()
    }

    /// Fails unless `next`, the superblock in the log, agrees with this superblock in the fields
    /// that were used to find the log. These are the sizes, the kind of checksums, the width of
    /// block numbers, and the journal's location. `next` may have more blocks, since a file system
    /// can grow, but not fewer.
    ///
    /// # Errors
    /// [`Cause::ChangedInLog`].
    pub fn check_next(&self, next: &Superblock) -> Result<(), Corruption> {
        let (old, new) = (self.geometry, next.geometry);
        let wide = |features: Incompat| features & (Incompat::BIT64 | Incompat::EXTENTS);
        let changed = [
            ("block size", old.block_size != new.block_size),
            ("first data block", old.first_data_block != new.first_data_block),
            ("number of blocks to fewer", new.block_count < old.block_count),
            ("size of groups", old.blocks_per_group != new.blocks_per_group),
            ("size of clusters", old.cluster_bits != new.cluster_bits || bigalloc(self, next)),
            ("number of inodes per group", old.inodes_per_group != new.inodes_per_group),
            ("size of inodes", old.inode_size != new.inode_size),
            ("size of descriptors", old.desc_size != new.desc_size),
            ("width of block numbers", wide(old.features.incompat) != wide(new.features.incompat)),
            ("checksums", !are_alike(self.checksums(), next.checksums())),
            ("place of the journal", self.journal() != next.journal()),
        ];
        match changed.into_iter().find(|(_, changed)| *changed) {
            Some((what, _)) => Err(Corruption::Superblock { cause: Cause::ChangedInLog { what } }),
            None => Ok(()),
        }
    }
}

/// Returns whether the checksums of a file system are computed in the same way according to both
/// superblocks. The uuid, from which the checksums of `gdt_csum` start, may differ, because it is
/// not needed to find the log.
fn are_alike(old: Checksums, new: Checksums) -> bool {
    match (old, new) {
        (Checksums::Descriptors { .. }, Checksums::Descriptors { .. }) => true,
        (old, new) => old == new,
    }
}

fn bigalloc(old: &Superblock, new: &Superblock) -> bool {
    let has = |s: &Superblock| s.features().ro_compat.contains(RoCompat::BIGALLOC);
    has(old) != has(new)
}

/// Returns a copy in which all fields are zeroed except those that change only when the layout of
/// the file system changes.
fn lasting(raw: &RawSuperblock) -> RawSuperblock {
    let blank = RawSuperblock::new_zeroed();
    let mut kept = raw.clone();
    let features = check::features(raw);
    if !features.incompat.contains(Incompat::CSUM_SEED) {
        // Without `metadata_csum_seed` the field has no meaning. A program writes the field before
        // it sets the feature, so the field may differ between copies.
        kept.s_checksum_seed = blank.s_checksum_seed;
    }
    if !features.incompat.contains(Incompat::ENCRYPT) {
        // Without `encrypt` the field has no meaning. A program writes this field, too,
        // before it sets the feature.
        kept.s_encrypt_algos = blank.s_encrypt_algos;
    }
    kept.s_feature_compat.set((features.compat - COMPAT_IN_USE).bits());
    kept.s_feature_incompat.set((features.incompat - Incompat::RECOVER).bits());
    kept.s_feature_ro_compat.set((features.ro_compat - RO_COMPAT_IN_USE).bits());
    macro_rules! blank {
        ($($field:ident)*) => { $(kept.$field = blank.$field;)* };
    }
    // Each copy of the superblock has its own values of these fields.
    blank!(s_block_group_nr s_checksum);
    // These fields are counts, times and states of use.
    blank!(
        s_free_blocks_count_lo s_free_blocks_count_hi s_free_inodes_count s_overhead_clusters
        s_mtime s_mtime_hi s_wtime s_wtime_hi s_lastcheck s_lastcheck_hi s_mnt_count s_state
        s_last_mounted s_last_orphan s_kbytes_written s_lpf_ino
    );
    blank!(
        s_error_count s_first_error_time s_first_error_time_hi s_first_error_ino
        s_first_error_block s_first_error_func s_first_error_line s_first_error_errcode
        s_last_error_time s_last_error_time_hi s_last_error_ino s_last_error_block
        s_last_error_func s_last_error_line s_last_error_errcode
    );
    // These fields are settings.
    blank!(
        s_max_mnt_count s_checkinterval s_errors s_volume_name s_default_mount_opts s_mount_opts
        s_r_blocks_count_lo s_r_blocks_count_hi s_def_resuid s_def_resgid
    );
    kept
}
