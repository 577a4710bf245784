//! A new image file that has no name until it is complete.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A file without a name, which disappears if the program is interrupted.
pub(super) struct Unnamed(File);

impl Unnamed {
    /// Creates an unnamed file, which later gets the name `path`. Returns `None` if the host's file
    /// system does not support unnamed files, or if `path` exists.
    pub(super) fn create(path: &Path) -> Option<Unnamed> {
        // Links are not followed, so a symbolic link to a missing file counts as existing too.
        if path.symlink_metadata().is_ok() {
            return None;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let file = openat(CWD, folder.unwrap_or(Path::new(".")), flags, mode).ok()?;
        let unnamed = Unnamed(file.into());
        unnamed.path().exists().then_some(unnamed)
    }

    /// Returns a path by which this process can open the file.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// If another program has created a file of this name meanwhile.
    pub(super) fn publish(&self, path: &Path) -> io::Result<()> {
        Ok(linkat(CWD, self.path(), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}
