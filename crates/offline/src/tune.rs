//! Changes settings in the superblock, and features that can change without rewriting other
//! metadata.

use crate::error::{Error, Refusal};
use crate::image::Image;
use crate::journal::JournalSize;
use lanefs_ondisk::checksum::{Checksums, Seed};
use lanefs_ondisk::encryption;
use lanefs_ondisk::features::{Compat, Features, Incompat, RoCompat};
use lanefs_ondisk::superblock::{
    DefaultMountOptions, OnError, RawSuperblock, State, SuperFlags, Superblock,
};
use zerocopy::little_endian::U32;

/// The largest share of reserved blocks: half of the file system, as in tune2fs.
const MOST_RESERVED_PERCENT: f64 = 50.0;

/// The longest interval of `mmp` in seconds, as in tune2fs.
const MOST_MMP_INTERVAL: u16 = 300;

/// The number of reserved blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reserved {
    /// This many blocks.
    Blocks(u64),
    /// A share of all blocks, from 0 to 50.
    Percent(f64),
}

/// Mount options to be set or cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionChange {
    /// The options.
    pub options: DefaultMountOptions,
    /// The options that are cleared before `options` is set.
    pub mask: DefaultMountOptions,
}

/// Features to be set and cleared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeatureChange {
    /// To be set.
    pub set: Features,
    /// To be cleared.
    pub clear: Features,
}

/// The change of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalChange {
    /// The journal is added, or replaced by one of another length. [`JournalSize::default`] leaves
    /// a journal as it is.
    Add(JournalSize),
    /// The journal is removed.
    Remove,
}

/// The settings to change; `None` leaves a setting unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)] // as in the superblock, see tune2fs(8)
pub struct Settings {
    /// At most 16 bytes.
    pub label: Option<Vec<u8>>,
    pub uuid: Option<[u8; 16]>,
    pub reserved: Option<Reserved>,
    pub reserved_uid: Option<u16>,
    pub reserved_gid: Option<u16>,
    pub on_error: Option<OnError>,
    pub mount_count: Option<u16>,
    /// The number of mounts after which e2fsck checks. An inner `None` means never.
    pub max_mount_count: Option<Option<u16>>,
    /// The seconds after which e2fsck checks. 0 means never.
    pub check_interval: Option<u32>,
    /// Seconds since 1970.
    pub last_checked: Option<u64>,
    /// At most 63 bytes.
    pub last_mounted: Option<Vec<u8>>,
    pub default_options: Vec<OptionChange>,
    /// Further mount options as text, at most 63 bytes.
    pub mount_options: Option<Vec<u8>>,
    /// The number of blocks in one chunk of a RAID. A chunk is a run of consecutive blocks on one
    /// disk.
    pub stride: Option<u16>,
    /// The number of data blocks in a full stripe.
    pub stripe_width: Option<u32>,
    /// With the feature `mmp`: seconds between two updates of the `mmp` block by a mount, at most
    /// 300.
    pub mmp_interval: Option<u16>,
    /// The hash of new directories: 0 legacy, 1 half MD4, 2 TEA.
    pub hash: Option<u8>,
    /// Whether the file system is for development kernels only.
    pub test: Option<SuperFlags>,
    /// Whether the next e2fsck checks everything.
    pub force_check: bool,
    pub features: FeatureChange,
    pub journal: Option<JournalChange>,
}

/// Features that can be set. Setting them touches only the superblock, the journal, the orphan file
/// and the `mmp` block.
const SETTABLE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::FAST_COMMIT)
        .union(Compat::DIR_INDEX)
        .union(Compat::EXT_ATTR)
        .union(Compat::STABLE_INODES),
    incompat: Incompat::CSUM_SEED.union(Incompat::MMP).union(Incompat::ENCRYPT),
    ro_compat: RoCompat::LARGE_FILE
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::VERITY),
};
/// Features that can be cleared. Clearing them touches only the metadata that the comment on
/// [`SETTABLE`] names.
const CLEARABLE: Features = Features {
    compat: Compat::HAS_JOURNAL.union(Compat::FAST_COMMIT).union(Compat::STABLE_INODES),
    incompat: Incompat::CSUM_SEED.union(Incompat::MMP),
    ro_compat: RoCompat::empty(),
};

impl Image {
    /// Changes settings, durably. After a crash either all settings of one call are changed, or
    /// none. A change of the journal is an exception: it is a separate step after the others.
    ///
    /// # Errors
    /// [`Error::Refused`] and [`Error::Journal`], before anything is written.
    pub fn tune(&mut self, settings: &Settings) -> Result<(), Error> {
        self.check_settings(settings)?;
        let journal = self.journal_change(settings)?;
        if journal.is_some() && !self.geometry().clusters().are_blocks() {
            return Err(Refusal::BigallocJournal.into());
        }
        if journal.is_some() && self.superblock.has_journal_elsewhere() {
            return Err(Refusal::JournalElsewhere.into());
        }
        self.set_fields(settings)?;
        self.set_features(&settings.features)?;
        if let Some(uuid) = settings.uuid {
            self.set_uuid(uuid)?;
        }
        if let Some(JournalChange::Add(size)) = journal {
            self.check_journal_size(size)?;
        }
        if settings.force_check {
            self.edit(|raw| raw.s_state.set(raw.s_state.get() | State::ERROR.bits()))?;
        }
        self.write_fields_of_features()?;
        if self.superblock.encode() != self.found.encode() {
            self.commit()?;
        }
        match journal {
            Some(JournalChange::Add(size)) => self.replace_journal(size),
            Some(JournalChange::Remove) => self.remove_journal(),
            None => Ok(()),
        }
    }

    fn check_settings(&self, settings: &Settings) -> Result<(), Error> {
        check_len("the label", settings.label.as_deref(), 16)?;
        check_len("the last mount point", settings.last_mounted.as_deref(), 63)?;
        check_len("the mount options", settings.mount_options.as_deref(), 63)?;
        if settings.mmp_interval.is_some_and(|seconds| seconds > MOST_MMP_INTERVAL) {
            return Err(Refusal::MmpInterval { most: MOST_MMP_INTERVAL }.into());
        }
        let FeatureChange { set, clear } = settings.features;
        let now = self.superblock.features();
        let changes = [(without(set, now), SETTABLE, true), (common(clear, now), CLEARABLE, false)];
        for (changes, allowed, set) in changes {
            let features = without(changes, allowed).names();
            if !features.is_empty() {
                return Err(Refusal::Features { features, set }.into());
            }
        }
        Ok(())
    }

    /// Returns the change of the journal that `-j`, `-J` and `-O has_journal` together request.
    fn journal_change(&self, settings: &Settings) -> Result<Option<JournalChange>, Error> {
        let FeatureChange { set, clear } = settings.features;
        let has = self.superblock.journal().is_some();
        let change = match settings.journal {
            Some(change) => Some(change),
            None if clear.compat.contains(Compat::HAS_JOURNAL) => Some(JournalChange::Remove),
            None if set.compat.contains(Compat::HAS_JOURNAL) => match has {
                true => None,
                false => Some(JournalChange::Add(JournalSize::default())),
            },
            None => None,
        };
        let compat = (self.superblock.features().compat | set.compat) - clear.compat;
        match change {
            Some(JournalChange::Add(JournalSize { fast_commit_blocks: Some(_), .. }))
                if !compat.contains(Compat::FAST_COMMIT) =>
            {
                let (wanted, needs) = ("fast_commit_size", "the feature fast_commit");
                Err(Refusal::Needs { wanted, needs }.into())
            }
            Some(JournalChange::Add(size)) if has && size == JournalSize::default() => Ok(None),
            Some(JournalChange::Remove) if !has => Ok(None),
            change => Ok(change),
        }
    }

    fn set_fields(&mut self, settings: &Settings) -> Result<(), Error> {
        let blocks = self.geometry().block_count();
        let reserved = match settings.reserved {
            Some(Reserved::Percent(percent))
                if (0.0..=MOST_RESERVED_PERCENT).contains(&percent) =>
            {
                Some((percent * blocks as f64 / 100.0) as u64)
            }
            Some(Reserved::Blocks(reserved)) if reserved <= blocks / 2 => Some(reserved),
            Some(_) => {
                return Err(Refusal::Reserved.into());
            }
            None => None,
        };
        self.edit(|raw| {
            if let Some(reserved) = reserved {
                raw.s_r_blocks_count_lo.set(reserved as u32);
                raw.s_r_blocks_count_hi.set((reserved >> 32) as u32);
            }
            set_words(raw, settings);
        })
    }

    fn set_features(&mut self, change: &FeatureChange) -> Result<(), Error> {
        let (now, raw) = (self.superblock.features(), self.superblock.raw());
        let seed = Seed::of_uuid(&raw.s_uuid).value();
        let sets = change.set.incompat.contains(Incompat::CSUM_SEED)
            && !now.incompat.contains(Incompat::CSUM_SEED);
        let clears = change.clear.incompat.contains(Incompat::CSUM_SEED)
            && now.incompat.contains(Incompat::CSUM_SEED);
        if sets && !now.ro_compat.contains(RoCompat::METADATA_CSUM) {
            let (wanted, needs) = ("metadata_csum_seed", "metadata_csum");
            return Err(Refusal::Needs { wanted, needs }.into());
        }
        if clears && raw.s_checksum_seed.get() != seed {
            return Err(Refusal::SeedInUse.into());
        }
        let encrypts = change.set.incompat.contains(Incompat::ENCRYPT)
            && !now.incompat.contains(Incompat::ENCRYPT);
        let index = change.set.compat.contains(Compat::DIR_INDEX);
        if index && raw.s_hash_seed.iter().all(|word| word.get() == 0) {
            let (wanted, needs) = ("dir_index", "a hash seed, which this image has not");
            return Err(Refusal::Needs { wanted, needs }.into());
        }
        if change.set.incompat.contains(Incompat::MMP) {
            self.add_mmp()?;
        }
        if change.clear.incompat.contains(Incompat::MMP) {
            self.remove_mmp()?;
        }
        // The feature `has_journal` changes only when a journal is added or removed.
        let compat = !Compat::HAS_JOURNAL;
        self.edit(|raw| {
            if sets {
                raw.s_checksum_seed.set(seed);
            }
            if clears {
                raw.s_checksum_seed.set(0);
            }
            if encrypts {
                raw.s_encrypt_algos = encryption::ALGORITHMS;
            }
            let set = |word: &mut U32, set: u32, clear: u32| word.set(word.get() & !clear | set);
            set(
                &mut raw.s_feature_compat,
                (change.set.compat & compat).bits(),
                (change.clear.compat & compat).bits(),
            );
            set(
                &mut raw.s_feature_incompat,
                (change.set.incompat - Incompat::MMP).bits(),
                (change.clear.incompat - Incompat::MMP).bits(),
            );
            set(&mut raw.s_feature_ro_compat, change.set.ro_compat.bits(), 0);
        })
    }

    /// Writes the fields that new features need. These fields and the features are in different
    /// sectors. The fields are written first, so even a torn superblock never has such a feature
    /// without its field.
    fn write_fields_of_features(&mut self) -> Result<(), Error> {
        let new = self.superblock.features().incompat - self.found.features().incompat;
        if !new.intersects(Incompat::CSUM_SEED.union(Incompat::ENCRYPT)) {
            return Ok(());
        }
        let (mut before, after) = (self.found.raw().clone(), self.superblock.raw());
        if new.contains(Incompat::CSUM_SEED) {
            before.s_checksum_seed = after.s_checksum_seed;
        }
        if new.contains(Incompat::ENCRYPT) {
            before.s_encrypt_algos = after.s_encrypt_algos;
        }
        let before = Superblock::from_raw(before)?;
        self.write_primary(&before)?;
        self.found = before;
        Ok(())
    }

    fn set_uuid(&mut self, uuid: [u8; 16]) -> Result<(), Error> {
        if uuid == self.superblock.uuid() {
            return Ok(());
        }
        if self.superblock.features().compat.contains(Compat::STABLE_INODES) {
            return Err(Refusal::StableUuid.into());
        }
        if self.superblock.has_journal_elsewhere() {
            return Err(Refusal::UuidInJournal.into());
        }
        let has_seed = self.superblock.features().incompat.contains(Incompat::CSUM_SEED);
        if matches!(self.checksums(), Checksums::All { .. }) && !has_seed {
            return Err(Refusal::UuidInChecksums.into());
        }
        if self.superblock.features().incompat.contains(Incompat::EA_INODE) && !has_seed {
            return Err(Refusal::UuidInHashes.into());
        }
        self.edit(|raw| raw.s_uuid = uuid)
    }
}

fn set_words(raw: &mut RawSuperblock, settings: &Settings) {
    if let Some(label) = &settings.label {
        fill(&mut raw.s_volume_name, label);
    }
    if let Some(uid) = settings.reserved_uid {
        raw.s_def_resuid.set(uid);
    }
    if let Some(gid) = settings.reserved_gid {
        raw.s_def_resgid.set(gid);
    }
    if let Some(on_error) = settings.on_error {
        raw.s_errors.set(match on_error {
            OnError::Continue => 1,
            OnError::ReadOnly => 2,
            OnError::Panic => 3,
        });
    }
    if let Some(count) = settings.mount_count {
        raw.s_mnt_count.set(count);
    }
    if let Some(count) = settings.max_mount_count {
        raw.s_max_mnt_count.set(count.unwrap_or(u16::MAX));
    }
    if let Some(seconds) = settings.check_interval {
        raw.s_checkinterval.set(seconds);
    }
    if let Some(time) = settings.last_checked {
        raw.s_lastcheck.set(time as u32);
        raw.s_lastcheck_hi = (time >> 32) as u8;
    }
    if let Some(path) = &settings.last_mounted {
        fill(&mut raw.s_last_mounted, path);
    }
    for change in &settings.default_options {
        let now = DefaultMountOptions::from_bits_retain(raw.s_default_mount_opts.get());
        raw.s_default_mount_opts.set(((now - change.mask) | change.options).bits());
    }
    if let Some(options) = &settings.mount_options {
        fill(&mut raw.s_mount_opts, options);
    }
    if let Some(stride) = settings.stride {
        raw.s_raid_stride.set(stride);
    }
    if let Some(width) = settings.stripe_width {
        raw.s_raid_stripe_width.set(width);
    }
    if let Some(interval) = settings.mmp_interval {
        raw.s_mmp_interval.set(interval);
    }
    if let Some(hash) = settings.hash {
        raw.s_def_hash_version = hash;
    }
    if let Some(test) = settings.test {
        let flags = SuperFlags::from_bits_retain(raw.s_flags.get());
        raw.s_flags.set(((flags - SuperFlags::TEST_FILESYS) | test).bits());
    }
}

fn fill(field: &mut [u8], value: &[u8]) {
    field.fill(0);
    field.iter_mut().zip(value).for_each(|(byte, value)| *byte = *value);
}

fn check_len(field: &'static str, value: Option<&[u8]>, most: usize) -> Result<(), Error> {
    match value {
        Some(value) if value.len() > most => {
            Err(Refusal::TooLong { field, len: value.len(), most }.into())
        }
        _ => Ok(()),
    }
}

fn without(a: Features, b: Features) -> Features {
    Features {
        compat: a.compat - b.compat,
        incompat: a.incompat - b.incompat,
        ro_compat: a.ro_compat - b.ro_compat,
    }
}

fn common(a: Features, b: Features) -> Features {
    Features {
        compat: a.compat & b.compat,
        incompat: a.incompat & b.incompat,
        ro_compat: a.ro_compat & b.ro_compat,
    }
}
