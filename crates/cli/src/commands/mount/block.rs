//! The mount of a block device, which the kernel claims as it does for its own file systems.
//!
//! The order leaves no moment in which the device is unprotected and something read from it counts:
//! lock and claim the device, let go of the claim for mount(2) alone, see that the kernel has it, and
//! only then read. The lock (flock) stays throughout. The mount's first request waits meanwhile.

use super::warn;
use lanefs_device::{Device, FileDevice};
use lanefs_fuse::{Busy, MountError, MountPoint, Options, Server, Session};
use rustix::fd::OwnedFd;
use std::error::Error;
use std::io;
use std::path::Path;

/// A mount that is not served yet. Dropped, it is taken away.
pub struct Attached {
    parts: Option<(OwnedFd, MountPoint)>,
}

impl Attached {
    /// What [`MountPoint::attach`] gave.
    pub fn new(
        made: Result<(OwnedFd, MountPoint), MountError>,
    ) -> Result<Attached, Box<dyn Error>> {
        Ok(Attached { parts: Some(made?) })
    }

    /// The same mount, read-only from now on.
    pub fn read_only(self, options: &Options) -> Result<Attached, Box<dyn Error>> {
        if let Some((_, point)) = &self.parts {
            point.make_read_only(options)?;
        }
        Ok(self)
    }

    /// Shakes hands with the kernel.
    pub fn start(mut self, server: Server) -> io::Result<(Session<Server>, MountPoint)> {
        let Some((fuse, point)) = self.parts.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        match Session::start(fuse, server) {
            Ok(session) => Ok((session, point)),
            Err(error) => {
                // It is of no use; that it cannot be taken away adds nothing to the first error.
                let _ = point.detach(Busy::Detach);
                Err(error)
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some((fuse, point)) = self.parts.take() {
            // First, so that programs that wait for the mount are told.
            drop(fuse);
            let _ = point.detach(Busy::Detach);
        }
    }
}

/// Mounts `device` as type `fuseblk`, if it is one that can be: a whole block device that is claimed for
/// writing, by root, shown under its own name. Nothing was read from it yet. `None`: it is to be mounted
/// as type `fuse`. If that is because the kernel refused, that is told.
pub fn attach(
    path: &Path,
    device: &mut FileDevice,
    mount_point: &Path,
    options: &Options,
) -> Result<Option<Attached>, Box<dyn Error>> {
    let is_root = rustix::process::geteuid().is_root();
    // Only a device that is written is claimed: several may read.
    if !is_root
        || !device.is_claimed()
        || options.shown_source.is_some()
        || !is_whole(device, options)
    {
        return Ok(None);
    }
    let refused = |source: io::Error| MountError::Refused { path: mount_point.into(), source };
    let made = device.hand_claim_to(
        path,
        || MountPoint::attach_block(mount_point, path, options),
        |(fuse, point)| {
            drop(fuse);
            let _ = point.detach(Busy::Detach);
            refused(io::Error::other("the kernel does not claim the device"))
        },
    )?;
    match made {
        Ok(made) => Ok(Some(Attached { parts: Some(made) })),
        Err(MountError::Refused { source, .. }) => {
            let what = format!(
                "the kernel refused type fuseblk ({source}): umount(8) and sync(2) do not wait for the \
                 server"
            );
            warn(path.as_os_str(), &what);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether the device is all of the block device, in whole pages, which the kernel then reads and writes.
fn is_whole(device: &FileDevice, options: &Options) -> bool {
    let whole = options.offset == 0 && options.size_limit.is_none();
    whole && device.len().is_multiple_of(rustix::param::page_size() as u64)
}
