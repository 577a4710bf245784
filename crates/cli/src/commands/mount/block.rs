//! Mounts a block device. The kernel claims the device, as it does for its own file systems.
//!
//! Nothing is read from the device before the mount has claimed it. First, Lanefs locks and claims
//! the device. It releases the claim for mount(2), so that the kernel can take the claim. After
//! mount(2), Lanefs checks that the kernel has the claim, and only then reads from the device. The
//! lock (flock) is held throughout. The first request of the mount waits until Lanefs serves it.

use crate::cli::{complain, plain};
use lanefs_device::{Device, FileDevice};
use lanefs_fuse::{Busy, MountError, MountPoint, Options, Server, Session};
use rustix::fd::OwnedFd;
use std::error::Error;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// A mount that is not served yet. Dropping this value unmounts the file system.
pub struct Attached {
    parts: Option<(OwnedFd, MountPoint)>,
}

impl Attached {
    /// Creates the value from the result of [`MountPoint::attach`].
    pub fn new(
        made: Result<(OwnedFd, MountPoint), MountError>,
    ) -> Result<Attached, Box<dyn Error>> {
        Ok(Attached { parts: Some(made?) })
    }

    /// Makes the mount read-only.
    pub fn read_only(self, options: &Options) -> Result<Attached, Box<dyn Error>> {
        if let Some((_, point)) = &self.parts {
            point.make_read_only(options)?;
        }
        Ok(self)
    }

    /// Negotiates the connection with the kernel.
    pub fn start(mut self, server: Server) -> io::Result<(Session<Server>, MountPoint)> {
        let Some((fuse, point)) = self.parts.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        match Session::start(fuse, server) {
            Ok(session) => Ok((session, point)),
            Err(error) => {
                // A failure to unmount is ignored, because only the first error matters to the
                // user.
                let _ = point.detach(Busy::Detach);
                Err(error)
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some((fuse, point)) = self.parts.take() {
            // The connection is dropped first, so that processes that wait for the mount get an
            // error.
            drop(fuse);
            let _ = point.detach(Busy::Detach);
        }
    }
}

/// Mounts `device` as type `fuseblk` if possible. This type requires that root runs the process,
/// that the process has claimed a whole block device for writing, and that the option `fsname` is
/// not given. Must be called before anything is read from the device. Returns `None` if the mount
/// has to be of type `fuse`. If the reason is that the kernel refused `fuseblk`, prints a warning.
pub fn attach(
    path: &Path,
    device: &mut FileDevice,
    mount_point: &Path,
    options: &Options,
) -> Result<Option<Attached>, Box<dyn Error>> {
    let is_root = rustix::process::geteuid().is_root();
    // Only a device opened for writing is claimed, since several processes may read the same
    // device.
    if !is_root || !device.is_claimed() || options.shown_source.is_some() || !is_whole(device) {
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

/// Returns whether `device` is the whole block device and consists of whole pages, as the kernel
/// requires for type `fuseblk`.
fn is_whole(device: &FileDevice) -> bool {
    device.is_whole() && device.len().is_multiple_of(rustix::param::page_size() as u64)
}

/// Prints a warning, as mount(8) does when it mounts with options other than those that the user
/// gave.
pub(super) fn warn(source: &OsStr, what: &str) {
    complain(format_args!("lanefs mount: {}: WARNING: {what}", source.display()));
}

pub(super) fn failed(error: &dyn Error) -> ExitCode {
    complain(message(error));
    ExitCode::FAILURE
}

/// Formats the error and its sources, on one line.
pub(super) fn message(error: &dyn Error) -> String {
    let mut text = format!("lanefs mount: {}", plain(&error.to_string()));
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = plain(&error.to_string());
        if !text.to_lowercase().contains(&more.to_lowercase()) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lanefs_device::OpenError;
    use std::io;

    #[test]
    fn a_message_names_each_cause_once() {
        let error = OpenError::Io {
            path: "/a".into(),
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        };
        assert_eq!(message(&error), "lanefs mount: /a: permission denied");
        let error = OpenError::Io { path: "/a".into(), source: io::Error::from_raw_os_error(2) };
        assert_eq!(message(&error), "lanefs mount: /a: no such file or directory");
    }
}
