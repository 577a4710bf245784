//! A directory of the host, on any file system.

use crate::error::{Error, Result};
use crate::target_tree::{How, Opened, TargetTree};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Advice, AtFlags, Dir, FallocateFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// A directory of the host. Paths are resolved from this directory and not from the host's root, so
/// the number of directories above the mount point does not affect the results.
pub struct HostDirectory {
    path: PathBuf,
    top: OwnedFd,
}

impl HostDirectory {
    /// Opens the directory at `path`.
    pub fn open(path: impl Into<PathBuf>) -> Result<HostDirectory> {
        let path = path.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = fs::open(&path, flags, Mode::empty())
            .map_err(|e| Error::host(path.display().to_string(), e))?;
        Ok(HostDirectory { path, top })
    }

    fn open_with(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o644);
        fs::openat(&self.top, path, flags | OFlags::CLOEXEC, mode).map_err(|e| Error::host(path, e))
    }
}

impl TargetTree for HostDirectory {
    fn make_dir(&self, path: &str) -> Result<()> {
        fs::mkdirat(&self.top, path, Mode::from_raw_mode(0o755)).map_err(|e| Error::host(path, e))
    }

    fn open<'a>(&'a self, path: &str, how: How) -> Result<Box<dyn Opened + 'a>> {
        let flags = match how {
            How::Read => OFlags::RDONLY,
            How::ReadDirect => OFlags::RDONLY | OFlags::DIRECT,
            How::WriteDirect => OFlags::WRONLY | OFlags::DIRECT,
            How::New => OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
            How::Emptied => OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC,
            How::Append => OFlags::WRONLY | OFlags::APPEND,
        };
        let file = match self.open_with(path, flags) {
            // Some file systems do not support direct I/O.
            Err(Error::Host { source, .. })
                if flags.contains(OFlags::DIRECT)
                    && source.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
            {
                self.open_with(path, flags - OFlags::DIRECT)?
            }
            other => other?,
        };
        Ok(Box::new(HostFile { file, path: path.into() }))
    }

    fn stat(&self, path: &str) -> Result<u64> {
        let found = fs::statat(&self.top, path, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| Error::host(path, e))?;
        Ok(found.st_size.unsigned_abs())
    }

    fn make_unnamed<'a>(&'a self, dir: &str) -> Result<Box<dyn Opened + 'a>> {
        match self.open_with(dir, OFlags::WRONLY | OFlags::TMPFILE) {
            Ok(file) => Ok(Box::new(HostFile { file, path: dir.into() })),
            // Some file systems do not support O_TMPFILE. On such file systems, programs create a
            // file and remove its name, so the benchmark does the same.
            Err(Error::Host { source, .. })
                if source.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) =>
            {
                let path = format!("{dir}/unnamed");
                let file = self.open(&path, How::New)?;
                self.remove(&path)?;
                Ok(file)
            }
            Err(error) => Err(error),
        }
    }

    fn remove(&self, path: &str) -> Result<()> {
        fs::unlinkat(&self.top, path, AtFlags::empty()).map_err(|e| Error::host(path, e))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        fs::renameat(&self.top, from, &self.top, to).map_err(|e| Error::host(from, e))
    }

    fn list(&self, path: &str) -> Result<u64> {
        let dir = self.open_with(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut entries = 0;
        for entry in Dir::new(dir).map_err(|e| Error::host(path, e))? {
            let entry = entry.map_err(|e| Error::host(path, e))?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                entries += 1;
            }
        }
        Ok(entries)
    }

    fn names(&self, path: &str) -> Result<Vec<String>> {
        let dir = self.open_with(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(dir).map_err(|e| Error::host(path, e))? {
            let entry = entry.map_err(|e| Error::host(path, e))?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    fn free_blocks(&self) -> Result<u64> {
        Ok(fs::fstatfs(&self.top).map_err(|e| Error::host(".", e))?.f_bfree)
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        std::fs::remove_dir_all(self.path.join(path)).map_err(|e| Error::host(path, e))
    }

    fn settle(&self) -> Result<()> {
        fs::syncfs(&self.top).map_err(|e| Error::host(".", e))
    }

    fn host_path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

struct HostFile {
    file: OwnedFd,
    path: String,
}

impl HostFile {
    fn checked<T>(&self, result: rustix::io::Result<T>) -> Result<T> {
        result.map_err(|e| Error::host(&self.path, e))
    }

    fn whole(&self, done: usize, wanted: usize) -> Result<()> {
        if done == wanted {
            return Ok(());
        }
        Err(Error::Short { path: self.path.clone(), done, wanted })
    }
}

impl Opened for HostFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let wanted = buf.len();
        let done = self.checked(rustix::io::pread(&self.file, buf, offset))?;
        self.whole(done, wanted)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let done = self.checked(rustix::io::pwrite(&self.file, data, offset))?;
        self.whole(done, data.len())
    }

    fn sync(&self) -> Result<()> {
        self.checked(fs::fsync(&self.file))
    }

    fn sync_data(&self) -> Result<()> {
        self.checked(fs::fdatasync(&self.file))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.checked(fs::fallocate(&self.file, FallocateFlags::empty(), offset, len))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.checked(fs::ftruncate(&self.file, len))
    }

    fn set_modified(&self, seconds: i64) -> Result<()> {
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        self.checked(fs::futimens(&self.file, &times))
    }

    fn forget_cached(&self) -> Result<()> {
        self.checked(fs::fadvise(&self.file, 0, None, Advice::DontNeed))
    }
}
