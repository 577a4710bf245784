//! Files of the host, read by several threads.

use crate::error::{Cause, Error, Result};
use crate::short_path::ShortPath;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A file of the host. It is open only while a thread reads it, because many files may wait to be
/// read.
pub(crate) struct HostFile {
    pub(crate) path: PathBuf,
}

impl HostFile {
    pub(crate) fn open(&self) -> Result<File> {
        let open = || File::open(ShortPath::new(&self.path)?);
        open().map_err(|error| self.failed(error))
    }

    /// Fills `buf` with the bytes of the open `file` from `offset` on.
    pub(crate) fn read(&self, file: &File, offset: u64, buf: &mut [u8]) -> Result<()> {
        file.read_exact_at(buf, offset).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Error::new(self.path.display(), Cause::Unreadable),
            io::ErrorKind::UnexpectedEof => Error::new(self.path.display(), Cause::Changed),
            _ => Error::new(self.path.display(), error),
        }
    }
}
