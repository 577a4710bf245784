//! Paths of the host of any length.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest path in bytes that is passed to a system call. The limit of Linux is 4,095. The
/// difference leaves room for the prefix `/proc/self/fd/N`.
const MOST: usize = 4000;

/// A path that system calls accept, although it may stand for a longer one. The end of a longer
/// path is given relative to an open directory, which is closed when this value is dropped.
#[derive(Debug)]
pub struct ShortPath<'p> {
    path: Cow<'p, Path>,
    _dir: Option<OwnedFd>,
}

impl<'p> ShortPath<'p> {
    /// Shortens `path`, if necessary.
    ///
    /// # Errors
    /// If a directory on the way to the end of a long path cannot be opened.
    pub fn new(path: &'p Path) -> io::Result<ShortPath<'p>> {
        let mut rest = path.as_os_str().as_bytes();
        let mut dir: Option<OwnedFd> = None;
        while let Some(head) = rest.get(..=MOST) {
            let slash = head.iter().rposition(|byte| *byte == b'/');
            let slash = slash.ok_or(Errno::NAMETOOLONG)?;
            let (head, tail) = rest.split_at(slash + 1);
            let above = dir.as_ref().map_or(CWD, AsFd::as_fd);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            dir = Some(rustix::fs::openat(above, head, flags, Mode::empty())?);
            let slashes = tail.iter().take_while(|byte| **byte == b'/').count();
            rest = tail.get(slashes..).unwrap_or_default();
        }
        let path = match &dir {
            None => Cow::Borrowed(path),
            Some(dir) => {
                let mut short = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
                short.push(OsStr::from_bytes(rest));
                Cow::Owned(short)
            }
        };
        Ok(ShortPath { path, _dir: dir })
    }
}

impl std::ops::Deref for ShortPath<'_> {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for ShortPath<'_> {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_at_a_path_of_any_length_is_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "found").unwrap();
        let sub = dir.path().join("d");
        std::fs::create_dir(&sub).unwrap();
        for len in [10, MOST - 20, MOST + 1, 9000, 50_000] {
            for detour in ["./", "d/../", ".//"] {
                let path = dir.path().join(detour.repeat(len / detour.len()) + "file");
                let short = ShortPath::new(&path).unwrap();
                assert!(short.as_os_str().len() < 4096);
                assert_eq!(std::fs::read(&short).unwrap(), b"found", "{len} {detour}");
            }
        }
        let name = PathBuf::from("n".repeat(5000));
        ShortPath::new(&name).expect_err("a name of 5,000 bytes");
        ShortPath::new(&dir.path().join("no/".repeat(2000))).expect_err("a missing directory");
    }
}
