//! Keeps the superblock in memory for the committer.

use crate::clock::now;
use crate::object::record::Record;
use crate::volume::Volume;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::{Mutex, Rank};
use lanefs_mkfs::resize::{self, SizeError};
use lanefs_ondisk::features::{Compat, RoCompat};
use lanefs_ondisk::superblock::{ErrorCode, ErrorRecord, Geometry, Superblock};
use lanefs_ondisk::{FileType, Ino};
use lanefs_plan::{CannotGrow, Error};

/// The largest size of a file in bytes that does not need the feature `large_file`.
const SMALL_FILE: u64 = (1 << 31) - 1;

/// The byte range of the superblock on the device.
pub(crate) const SUPERBLOCK: std::ops::Range<usize> = 1024..2048;

/// Holds the superblock. While the file system is in use, only the committer changes it.
pub(crate) struct SuperState {
    inner: Mutex<Inner>,
    /// Any thread may record an error, whatever locks it holds. [rank LaneList]
    errors: Mutex<Errors>,
}

/// The errors that this mount has met.
#[derive(Default)]
struct Errors {
    /// The last error, if no captured superblock contains it yet.
    pending: Option<ErrorRecord>,
    are_any: bool,
}

/// The features that inodes use although they may be missing: `ext_attr` and `large_file`. Like the
/// kernel, a commit adds them with the first inode that uses them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsedFeatures {
    compat: Compat,
    ro_compat: RoCompat,
}

impl UsedFeatures {
    pub(crate) const NONE: UsedFeatures =
        UsedFeatures { compat: Compat::empty(), ro_compat: RoCompat::empty() };

    /// Adds the features that an inode uses.
    pub(crate) fn add(&mut self, record: &Record, geometry: &Geometry) {
        let area = record.disk.xattr_area(geometry).map(|area| record.raw.area(area));
        // An attribute area that is in use starts with a magic number.
        let is_in_use = |area: &[u8]| area.first_chunk().is_some_and(|magic| *magic != [0; 4]);
        if record.disk.file_acl.is_some() || area.is_some_and(|area| is_in_use(&area)) {
            self.compat |= Compat::EXT_ATTR;
        }
        if record.disk.file_type() == Some(FileType::Regular) && record.disk.size > SMALL_FILE {
            self.ro_compat |= RoCompat::LARGE_FILE;
        }
    }
}

struct Inner {
    superblock: Superblock,
    /// The block that contains the superblock, with the bytes around it.
    image: Vec<u8>,
}

impl SuperState {
    /// Creates the state; `image` is the block that contains the superblock.
    pub(crate) fn new(superblock: Superblock, image: Vec<u8>) -> SuperState {
        let inner = Inner { superblock, image };
        let errors = Mutex::new(Rank::LaneList, Errors::default());
        SuperState { inner: Mutex::new(Rank::Load, inner), errors }
    }

    /// Committer: returns the block with the superblock. Sets the counts of free blocks and of free
    /// inodes in it, and adds the features that inodes use. If `orphan_head` or `blocks` is given,
    /// sets the head of the orphan list or the number of blocks too.
    pub(crate) fn capture(
        &self,
        free: (u64, u64),
        orphan_head: Option<Ino>,
        blocks: Option<u64>,
        used: UsedFeatures,
    ) -> Result<Arc<[u8]>, Error> {
        let mut inner = self.inner.lock();
        inner.superblock.add_features(used.compat, used.ro_compat);
        if let Some(blocks) = blocks {
            inner.superblock = resized(&inner.superblock, blocks)?;
        }
        inner.superblock.set_free_blocks(free.0);
        inner.superblock.set_free_inodes(u32::try_from(free.1).unwrap_or(u32::MAX));
        if let Some(head) = orphan_head {
            inner.superblock.set_last_orphan((head.0 != 0).then_some(head));
        }
        if let Some(error) = self.errors.lock().pending.take() {
            inner.superblock.record_error(&error);
        }
        Ok(inner.encode().into())
    }

    /// Returns whether the superblock lacks a feature that inodes use.
    pub(crate) fn lacks(&self, used: UsedFeatures) -> bool {
        let features = self.inner.lock().superblock.features();
        !features.compat.contains(used.compat) || !features.ro_compat.contains(used.ro_compat)
    }

    /// Changes the superblock outside of the journal, at mount and close. Returns the block to
    /// write.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Superblock)) -> Vec<u8> {
        let mut inner = self.inner.lock();
        change(&mut inner.superblock);
        if let Some(error) = self.errors.lock().pending.take() {
            inner.superblock.record_error(&error);
        }
        inner.encode()
    }

    /// Returns a copy of the superblock as it is in memory.
    pub(crate) fn snapshot(&self) -> Superblock {
        self.inner.lock().superblock.clone()
    }

    /// Notes an error, to be written with the next image.
    pub(crate) fn note_error(&self, error: ErrorRecord) {
        *self.errors.lock() = Errors { pending: Some(error), are_any: true };
    }

    /// Returns whether this mount has met errors.
    pub(crate) fn has_met_errors(&self) -> bool {
        self.errors.lock().are_any
    }
}

/// Returns the superblock of the file system with `blocks` blocks: see [`resize::resized`].
///
/// # Errors
/// [`Error::CannotGrow`], [`Error::Corruption`].
pub(crate) fn resized(superblock: &Superblock, blocks: u64) -> Result<Superblock, Error> {
    resize::resized(superblock, blocks).map_err(|error| match error {
        SizeError::Refused(reason) => CannotGrow::Size(reason).into(),
        SizeError::Corruption(cause) => cause.into(),
    })
}

/// Records the abort of the journal in the superblock on the device. Patches the superblock that is
/// read from the device, because the superblock in memory may belong to a transaction that is lost.
pub(crate) fn record_abort(volume: &Volume, cause: &lanefs_journal::Error) -> Result<(), Error> {
    let code = match cause {
        lanefs_journal::Error::Device(_) => ErrorCode::Io,
        lanefs_journal::Error::Corruption(_) => ErrorCode::Damage,
        _ => ErrorCode::Unknown,
    };
    let time = now().secs.try_into().unwrap_or(0);
    let function = "lanefs: journal aborted".into();
    let mut bytes = [0; SUPERBLOCK.end - SUPERBLOCK.start];
    volume.device.read_at(SUPERBLOCK.start as u64, &mut bytes)?;
    let mut superblock = Superblock::decode(&bytes)?;
    superblock.record_error(&ErrorRecord { time, ino: 0, block: 0, function, line: 0, code });
    Ok(volume.device.write_durable_at(SUPERBLOCK.start as u64, &superblock.encode())?)
}

impl Inner {
    fn encode(&mut self) -> Vec<u8> {
        let bytes = self.superblock.encode();
        let at = SUPERBLOCK.start % self.image.len();
        self.image[at..at + bytes.len()].copy_from_slice(&bytes);
        self.image.clone()
    }
}
