//! Errors, with the path of the failed operation.

use lanefs_device::OpenError;
use lanefs_mkfs::MkfsError;
use lanefs_raid5::{AssembleError, MemberFault};
use rustix::io::Errno;
use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error as ThisError;

/// A failed operation: the path and the cause.
///
/// Converts into a [`std::io::Error`] as the host's system calls give it: with the
/// [`raw_os_error`](std::io::Error::raw_os_error), without path and cause. So do the traits of
/// [`std::io`] report errors; the methods that end in `_at` return this type.
///
/// ```
/// use lanefs::{Cause, Ext4Error, FileSystem};
///
/// # use lanefs::device::RamDevice;
/// # use lanefs::{FormatOptions, OpenOptions};
/// # let device = std::sync::Arc::new(RamDevice::create(64 << 20).unwrap());
/// # FileSystem::format(&*device, &FormatOptions::default())?;
/// # let fs = FileSystem::open_device(device, &OpenOptions::new())?;
/// fs.create_dir("/d")?;
/// let error = fs.remove_file("/d").unwrap_err();
/// assert_eq!(error.to_string(), "/d: is a directory");
/// assert!(matches!(error.cause(), Cause::FileSystem(Ext4Error::IsDirectory)));
/// assert_eq!(std::io::Error::from(error).raw_os_error(), Some(21)); // EISDIR
/// # Ok::<(), lanefs::Error>(())
/// ```
#[derive(Debug, ThisError)]
pub struct Error {
    path: Option<PathBuf>,
    #[source]
    cause: Cause,
}

/// Why an operation failed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Cause {
    /// An error of the file system; [`lanefs_ext4::Error`] says whether the image, the device or
    /// the caller is at fault.
    #[error(transparent)]
    FileSystem(#[from] lanefs_ext4::Error),
    /// The image or the block device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An array cannot be assembled.
    #[error(transparent)]
    Array(Box<AssembleError>),
    /// A file system cannot be created.
    #[error(transparent)]
    Format(#[from] MkfsError),
    /// A file of the host cannot be read or written.
    #[error("{} on the host: {source}", path.display())]
    Host {
        /// The path on the host.
        path: PathBuf,
        /// What the host says.
        source: std::io::Error,
    },
    /// The call makes no sense for this file (`EINVAL`); contains the reason.
    #[error("{0}")]
    Invalid(&'static str),
    /// The contents of a file are not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// There is not enough memory for the contents of a file.
    #[error("out of memory")]
    OutOfMemory,
    /// The file ends before the buffer of [`crate::File::read_exact_at`] is full.
    #[error("the file ends too early")]
    UnexpectedEof,
    /// [`crate::WalkDir`] met a directory for the second time.
    #[error("the directory was met before: it was moved meanwhile, or the image is damaged")]
    Repeated,
    /// Files or directories of the file system are still open. The file system is unmounted when
    /// the last open file or directory is dropped.
    #[error("files of the file system are still open")]
    FilesOpen,
}

/// The result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns the path within the file system, if the operation was on a path.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the reason.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns the error number (`errno`), with its value on Linux.
    pub fn errno(&self) -> i32 {
        let errno = match &self.cause {
            Cause::FileSystem(error) => return error.errno(),
            Cause::Open(OpenError::Io { source, .. }) | Cause::Host { source, .. } => {
                let invalid = source.kind() == std::io::ErrorKind::InvalidInput; // a NUL byte
                let other = if invalid { Errno::INVAL } else { Errno::IO };
                return source.raw_os_error().unwrap_or(other.raw_os_error());
            }
            Cause::Open(OpenError::InUse { .. }) | Cause::FilesOpen => Errno::BUSY,
            Cause::Open(OpenError::WriteProtected { .. }) => Errno::ROFS,
            Cause::Format(MkfsError::Device(_)) | Cause::UnexpectedEof => Errno::IO,
            Cause::Repeated => Errno::LOOP,
            Cause::NotUtf8 => Errno::ILSEQ,
            Cause::OutOfMemory => Errno::NOMEM,
            Cause::Array(error) => match **error {
                AssembleError::Member { fault: MemberFault::Device(_), .. }
                | AssembleError::Failed(_)
                | AssembleError::Unsettled(_)
                | AssembleError::TooManyMissing { .. } => Errno::IO,
                _ => Errno::INVAL,
            },
            Cause::Open(_) | Cause::Format(_) | Cause::Invalid(_) => Errno::INVAL,
        };
        errno.raw_os_error()
    }

    /// Returns whether a name on the path does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self.cause, Cause::FileSystem(lanefs_ext4::Error::NotFound))
    }

    /// Returns whether the operation failed because a name exists already.
    pub fn is_exists(&self) -> bool {
        matches!(self.cause, Cause::FileSystem(lanefs_ext4::Error::Exists))
    }

    pub(crate) fn new(path: &Path, cause: Cause) -> Error {
        Error { path: Some(path.into()), cause }
    }

    pub(crate) fn at(path: &Path, error: lanefs_ext4::Error) -> Error {
        Error::new(path, error.into())
    }
}

impl<E: Into<Cause>> From<E> for Error {
    fn from(error: E) -> Error {
        Error { path: None, cause: error.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        self.cause.fmt(f)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        match error.cause {
            Cause::UnexpectedEof => std::io::Error::new(std::io::ErrorKind::UnexpectedEof, error),
            Cause::NotUtf8 => std::io::Error::new(std::io::ErrorKind::InvalidData, error),
            _ => std::io::Error::from_raw_os_error(error.errno()),
        }
    }
}

/// Adds the path to an error of a lower layer.
pub(crate) trait At<T> {
    fn at(self, path: &Path) -> Result<T>;
}

impl<T> At<T> for std::result::Result<T, lanefs_ext4::Error> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|error| Error::at(path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_path_and_keeps_its_number() {
        let error = Error::at(Path::new("/a"), lanefs_ext4::Error::NotFound);
        assert_eq!(error.to_string(), "/a: no such file or directory");
        let io = std::io::Error::from(error);
        assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
        assert_eq!(io.raw_os_error(), Some(2));
    }
}
