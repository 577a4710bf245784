//! Waits until another program closes an image, if that is likely to happen soon.

use super::{Failure, complain};
use lanefs::{Cause, Error, Source};
use lanefs_device::{Access, Device, FileDevice, OpenError, OpenOptions, User};
use lanefs_ext4::Exclusive;
use lanefs_fuse::MountEntry;
use lanefs_raid5::ArrayOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time that a command waits for an image that is in use, because the image may have been
/// unmounted just before. When umount(8) unmounts a file system of type `fuse`, it returns before
/// the server has written its last byte. A loop device may exist slightly longer than its mount.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time that `lanefs mount` waits. It is longer than [`PATIENCE`], because the server of an
/// earlier mount may have much data to write to a slow disk.
const MOUNT_PATIENCE: Duration = Duration::from_secs(60);
/// The time after which `lanefs mount` prints that it waits.
const TOLD_AFTER: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// Opens an image; waits briefly if another program uses the image but has not mounted it.
pub fn open_image(
    image: &Path,
    access: Access,
    part: OpenOptions,
) -> Result<FileDevice, OpenError> {
    wait(PATIENCE, &mut || {}, &mut || {
        FileDevice::open(image, access, part).map_err(|error| (in_use(&error), error))
    })
}

/// Opens an image or an array, and waits as [`open_image`] does.
pub fn open_source(name: &Path, access: Access, part: OpenOptions) -> Result<Source, Failure> {
    if Source::array_name(name).is_none() {
        return Ok(Source::Image(Arc::new(open_image(name, access, part)?)));
    }
    let opened =
        wait(PATIENCE, &mut || {}, &mut || open_array(name, part, ArrayOptions::new(access)));
    opened.map_err(|error| Failure::opening_source(name, &error))
}

/// Opens an image to be mounted: waits longer than [`open_image`], and prints that it waits.
pub fn open_image_to_mount(
    image: &Path,
    access: Access,
    part: OpenOptions,
) -> Result<FileDevice, OpenError> {
    wait(MOUNT_PATIENCE, &mut || announce_wait(image), &mut || {
        FileDevice::open(image, access, part).map_err(|error| (in_use(&error), error))
    })
}

/// Opens an array to be mounted: waits longer than [`open_source`], and prints that it waits.
pub fn open_array_to_mount(
    name: &Path,
    part: OpenOptions,
    options: ArrayOptions,
) -> Result<Source, Error> {
    wait(MOUNT_PATIENCE, &mut || announce_wait(name), &mut || open_array(name, part, options))
}

fn open_array(
    name: &Path,
    part: OpenOptions,
    options: ArrayOptions,
) -> Result<Source, (Use, Error)> {
    Source::open_with(name, part, options).map_err(|error| match error.cause() {
        Cause::Open(cause) => (in_use(cause), error),
        _ => (Use::Lasts, error),
    })
}

fn announce_wait(name: &Path) {
    let (name, seconds) = (name.display(), MOUNT_PATIENCE.as_secs());
    complain(format_args!("lanefs mount: {name}: still in use, waiting for up to {seconds} s"));
}

/// Prints that a change will wait, because another computer possibly uses the file system (feature
/// `mmp`).
pub fn announce_mmp(command: &str, name: &Path, device: &Arc<dyn Device>) {
    if let Some((wait, why)) = Exclusive::expected_wait(device) {
        let (name, seconds) = (name.display(), wait.as_secs());
        complain(format_args!("{command}: {name}: {why}: waiting for {seconds} s"));
    }
}

/// Whether it is useful to wait for an image that cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The program that uses the image is possibly about to close it.
    MayEnd,
    /// Waiting would not help: the image is mounted, or the error has another cause.
    Lasts,
}

/// Calls `open` until it succeeds or fails permanently, or until `patience` has passed. If the wait
/// exceeds `TOLD_AFTER`, calls `announce` once.
fn wait<T, E>(
    patience: Duration,
    announce: &mut dyn FnMut(),
    open: &mut dyn FnMut() -> Result<T, (Use, E)>,
) -> Result<T, E> {
    let (start, mut announced) = (Instant::now(), false);
    loop {
        match open() {
            Ok(opened) => return Ok(opened),
            Err((Use::MayEnd, _)) if start.elapsed() < patience => {}
            Err((_, error)) => return Err(error),
        }
        if !announced && start.elapsed() > TOLD_AFTER {
            announced = true;
            announce();
        }
        std::thread::sleep(PAUSE);
    }
}

fn in_use(error: &OpenError) -> Use {
    let may_end = match error {
        OpenError::InUse { path, by: User::Lock } => matches!(MountEntry::of(path), Ok(None)),
        OpenError::InUse { by: User::Loop { mounted_on, .. }, .. } => mounted_on.is_none(),
        _ => false,
    };
    if may_end { Use::MayEnd } else { Use::Lasts }
}
