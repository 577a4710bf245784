//! Waiting for whoever is just closing an image.

use super::Failure;
use lanefs::{Cause, Source};
use lanefs_device::{Access, FileDevice, OpenError, OpenOptions, User};
use lanefs_fuse::MountEntry;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an image that is in use is waited for. umount(8) returns before the server of a mount has
/// written its last byte, and a loop device may live a moment longer than its mount.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);

/// Opens an image, waiting for a moment if its user may be about to end; one that is mounted is not.
pub fn open_image(
    image: &Path,
    access: Access,
    part: OpenOptions,
) -> Result<FileDevice, OpenError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match FileDevice::open(image, access, part) {
            Err(OpenError::InUse { by, .. }) if may_end(image, &by) && Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Opens an image or an array, waiting as [`open_image`] does.
pub fn open_source(name: &Path, access: Access, part: OpenOptions) -> Result<Source, Failure> {
    if Source::array_name(name).is_none() {
        let device = open_image(name, access, part);
        let device = device.map_err(|error| Failure::opening(name, &error))?;
        return Ok(Source::Image(Arc::new(device)));
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let error = match Source::open(name, access, part) {
            Ok(source) => return Ok(source),
            Err(error) => error,
        };
        match error.cause() {
            Cause::Open(OpenError::InUse { path, by })
                if may_end(path, by) && Instant::now() < end =>
            {
                std::thread::sleep(PAUSE);
            }
            _ => return Err(Failure::opening_source(name, &error)),
        }
    }
}

fn may_end(image: &Path, by: &User) -> bool {
    match by {
        User::Lock => matches!(MountEntry::of(image), Ok(None)),
        User::Loop { mounted_on, .. } => mounted_on.is_none(),
        User::Host => false,
    }
}
