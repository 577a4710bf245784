//! Errors of measuring.

use std::io;

/// The result of a measurement or of its set-up.
pub type Result<T> = std::result::Result<T, Error>;

/// A workload or a target failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call of the host failed.
    #[error("{path}: {source}")]
    Host {
        /// The path, within the target or on the host.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// An operation of Lanefs failed.
    #[error("{path}: {source}")]
    Lanefs {
        /// The path within the image.
        path: String,
        /// The reason.
        source: lanefs_ext4::Error,
    },
    /// An image could not be opened.
    #[error(transparent)]
    Image(#[from] lanefs_device::OpenError),
    /// An array could not be assembled.
    #[error(transparent)]
    Array(#[from] lanefs_raid5::AssembleError),
    /// An operation failed on a device that is measured without a file system.
    #[error(transparent)]
    Device(#[from] lanefs_device::DeviceError),
    /// A program that the benchmark runs failed.
    #[error("{program}: {said}")]
    Program {
        /// The name of the program.
        program: String,
        /// The last part of the program's output.
        said: String,
    },
    /// The run was stopped before the operation was done.
    #[error("interrupted")]
    Interrupted,
    /// A read or write moved fewer bytes than requested.
    #[error("{path}: {done} of {wanted} bytes")]
    Short {
        /// The path within the target.
        path: String,
        /// The number of bytes moved.
        done: usize,
        /// The number of bytes requested.
        wanted: usize,
    },
}

impl Error {
    /// Returns whether the error is that the file already exists.
    pub(crate) fn says_exists(&self) -> bool {
        match self {
            Error::Host { source, .. } => source.kind() == io::ErrorKind::AlreadyExists,
            Error::Lanefs { source, .. } => matches!(source, lanefs_ext4::Error::Exists),
            _ => false,
        }
    }

    /// Returns the host's error on `path`.
    pub fn host(path: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Host { path: path.into(), source: source.into() }
    }
}
