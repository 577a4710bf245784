//! A device that may be a member: it is open, and its superblock is read and checked.

use crate::assemble_error::AssembleError;
use lanefs_device::{Access, Device, FileDevice, OpenOptions};
use lanefs_lanes::sync::Arc;
use lanefs_ondisk::md::{self, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::path::{Path, PathBuf};

/// A device with an md superblock.
#[derive(Clone)]
pub struct Candidate {
    /// The device's name in messages.
    pub name: PathBuf,
    /// The whole device.
    pub device: Arc<dyn Device>,
    /// The device's superblock.
    pub superblock: Superblock,
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Candidate {
    /// Opens the file or block device at `path`, exclusively if it is to be written.
    ///
    /// # Errors
    /// If the device cannot be opened or read, or has no valid superblock.
    pub fn open(path: &Path, access: Access) -> Result<Candidate, AssembleError> {
        let device = FileDevice::open(path, access, OpenOptions::default())?;
        Candidate::read(path, Arc::new(device.keeping_length()))
    }

    /// Reads the superblock at `path` while other processes may use and change the device.
    ///
    /// # Errors
    /// The same as for [`Candidate::open`], but a device in use is not an error.
    pub fn peek(path: &Path) -> Result<Candidate, AssembleError> {
        let device = FileDevice::peek(path, OpenOptions::default())?;
        Candidate::read(path, Arc::new(device))
    }

    /// Reads the superblock of `device`.
    ///
    /// # Errors
    /// If the superblock cannot be read or is not valid.
    pub fn read(name: &Path, device: Arc<dyn Device>) -> Result<Candidate, AssembleError> {
        let len = device.len();
        if len < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
            return Err(AssembleError::member(name, md::Cause::NotASuperblock));
        }
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        device
            .read_at(SUPERBLOCK_OFFSET, &mut bytes)
            .map_err(|error| AssembleError::member(name, error))?;
        match Superblock::decode(&bytes, len) {
            Ok(superblock) => Ok(Candidate { name: name.into(), device, superblock }),
            Err(cause) => Err(AssembleError::member(name, cause)),
        }
    }

    /// Returns the bad sectors in the member's bad-block log, as byte ranges of its device.
    ///
    /// # Errors
    /// If the log cannot be read or is not valid.
    pub fn bad_blocks(&self) -> Result<Vec<std::ops::Range<u64>>, AssembleError> {
        let has = self.superblock.features().contains(md::Features::BAD_BLOCKS);
        let Some(area) = self.superblock.bad_block_log().filter(|_| has) else {
            return Ok(Vec::new());
        };
        // The log has at most 65,535 sectors, because its length field has 16 bits.
        let mut log = vec![0; area.len as usize];
        let failed = |error| AssembleError::member(&self.name, error);
        self.device.read_at(area.offset, &mut log).map_err(failed)?;
        let ranges = md::bad_blocks::decode(&log, self.superblock.bad_block_shift())
            .map_err(|cause| AssembleError::member(&self.name, cause))?;
        let bytes = |sector: u64| sector.saturating_mul(md::SECTOR);
        Ok(ranges.into_iter().map(|range| bytes(range.start)..bytes(range.end)).collect())
    }
}
