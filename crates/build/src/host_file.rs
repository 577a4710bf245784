//! Files of the host, read by several threads.

use crate::error::{Cause, Error, Result};
use lanefs_lanes::sync::unscheduled::{Mutex, PoisonError};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A file of the host. If it is not open yet, it is opened when its first bytes are read.
pub(crate) struct HostFile {
    path: PathBuf,
    open: Mutex<Option<Arc<File>>>,
}

impl HostFile {
    pub(crate) fn new(path: PathBuf, open: Option<File>) -> HostFile {
        HostFile { path, open: Mutex::new(open.map(Arc::new)) }
    }

    /// Fills `buf` with the bytes from `offset` on.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                Error::new(self.path.display(), Cause::Unreadable)
            }
            std::io::ErrorKind::UnexpectedEof => Error::new(self.path.display(), Cause::Changed),
            _ => Error::new(self.path.display(), error),
        };
        let file = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            match &*open {
                Some(file) => file.clone(),
                None => {
                    let file = Arc::new(File::open(&self.path).map_err(failed)?);
                    *open = Some(file.clone());
                    file
                }
            }
        };
        file.read_exact_at(buf, offset).map_err(failed)
    }
}
