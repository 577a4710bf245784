//! Opens a file system for changes.

use crate::error::{Error, Unchecked};
use crate::image::Image;
use crate::recover::{make_usable, of_superblock};
use lanefs_device::Device;
use lanefs_ext4::Primary;
use std::sync::Arc;

/// Returns whether the file system on `device` has its journal on another device.
pub fn has_journal_elsewhere(device: &dyn Device) -> bool {
    Primary::read(device).is_ok_and(|found| found.superblock.has_journal_elsewhere())
}

impl Image {
    /// Opens the file system on `device` for changes. Recovers it first, if a crash made that
    /// necessary.
    ///
    /// # Errors
    /// [`Error::NeedsCheck`] if the file system has errors that a recovery does not correct.
    pub fn open(device: Arc<dyn Device>) -> Result<Image, Error> {
        Image::open_with(device, None)
    }

    /// Does the same as [`Image::open`], for a file system whose journal is on `journal`.
    ///
    /// # Errors
    /// The same as for [`Image::open`].
    pub fn open_with(
        device: Arc<dyn Device>,
        journal: Option<&Arc<dyn Device>>,
    ) -> Result<Image, Error> {
        let condition = make_usable(&device, journal)?;
        if condition.has_errors {
            return Err(Unchecked::HasErrors.into());
        }
        if condition.is_unclean {
            return Err(Unchecked::Unclean.into());
        }
        let image = Image::load_exclusively(device, journal)?;
        // The file system is claimed (`mmp`) only after the recovery. In between, another computer
        // may have mounted it and crashed.
        match image.is_exclusive() && of_superblock(image.superblock()).needs_replay {
            true => Err(lanefs_ext4::Error::Busy.into()),
            false => Ok(image),
        }
    }
}
